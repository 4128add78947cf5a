"""NeMo's answers for small random Sortformers (tests/golden/make_sortformer.py), and their recordings."""

import io
import json
import tarfile
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import yaml
from numpy.typing import NDArray

from tests.golden.make_sortformer import TALK
from worker.models import SortformerNetwork

Floats = NDArray[np.float32]

GOLDEN = Path(__file__).parents[3] / "golden"
OFFLINE, STREAMING, NORMALISED = "sortformer_v1", "sortformer_v21", "sortformer_normal"
TALK_ROW, ONE_ROW = 0, 1


def archive(name: str) -> Path:
    return GOLDEN / "sortformer" / f"{name}.nemo"


@cache
def network(name: str) -> SortformerNetwork:
    from worker.models import load_sortformer

    return load_sortformer(archive(name))


@cache
def answers() -> dict[str, NDArray[Any]]:
    return dict(np.load(GOLDEN / "sortformer" / "answers.npz"))


def answer(name: str, key: str) -> NDArray[Any]:
    return answers()[f"{name}/{key}"]


def parsed(name: str, key: str) -> Any:
    return json.loads(str(answer(name, key)))


@cache
def recordings() -> tuple[Floats, Floats]:
    stored = np.load(GOLDEN / "audio.npz")
    rows = [stored["audio"][row, : stored["lengths"][row]] / np.float32(32768) for row in range(5)]
    return np.concatenate([rows[row] for row in TALK]).astype(np.float32), rows[0].astype(np.float32)


def rewritten(name: str, path: Path, change: Callable[[dict[str, Any]], object]) -> Path:
    """The archive with another configuration, at `path`."""
    with tarfile.open(archive(name)) as source, tarfile.open(path, "w") as copy:
        for member in source.getmembers():
            file = source.extractfile(member)
            content = file.read() if file else b""
            if member.name.endswith("model_config.yaml"):
                tree = yaml.safe_load(content)
                change(tree)
                content = yaml.safe_dump(tree).encode()
                member.size = len(content)
            copy.addfile(member, io.BytesIO(content))
    return path
