"""The cache of features between preparation and training: one flat half-precision file and an index a set.

Knows the two files; knows nothing of where the audio came from.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from dataclasses import asdict, dataclass
from pathlib import Path

import numpy as np

from ops.train.data.features import MELS, Mels


@dataclass(frozen=True)
class Clip:
    """One recording: what was said, by whom, and where its frames lie in the flat file."""

    id: str
    text: str
    domain: str
    split: str
    speaker: str
    start: int
    frames: int


@dataclass(frozen=True)
class Named:
    """A recording on its way into the cache."""

    id: str
    text: str
    domain: str
    split: str
    speaker: str
    mels: Mels


def write(folder: Path, name: str, items: Iterable[Named]) -> int:
    """Writes `name`.f16 and `name`.jsonl under the folder, replacing both at the end; gives the frames."""
    folder.mkdir(parents=True, exist_ok=True)
    data, index = folder / f"{name}.f16", folder / f"{name}.jsonl"
    start = 0
    with data.with_suffix(".part").open("wb") as frames, index.with_suffix(".part2").open("w") as lines:
        for item in items:
            frames.write(item.mels.astype(np.float16).tobytes())
            clip = Clip(item.id, item.text, item.domain, item.split, item.speaker, start, len(item.mels))
            lines.write(json.dumps(asdict(clip)) + "\n")
            start += len(item.mels)
    data.with_suffix(".part").replace(data)
    index.with_suffix(".part2").replace(index)
    return start


class FeatureSet:
    """A written set, its frames mapped and not read until asked for."""

    def __init__(self, folder: Path, name: str) -> None:
        with (folder / f"{name}.jsonl").open() as lines:
            self.clips = [Clip(**json.loads(line)) for line in lines]
        flat = np.memmap(folder / f"{name}.f16", np.float16, "r")
        self._frames = flat.reshape(-1, MELS)

    def __iter__(self) -> Iterator[Clip]:
        return iter(self.clips)

    def __len__(self) -> int:
        return len(self.clips)

    def mels(self, clip: Clip) -> Mels:
        """Log-mel of the clip, float32 [frames, 80], not normalised."""
        return np.array(self._frames[clip.start : clip.start + clip.frames], dtype=np.float32)
