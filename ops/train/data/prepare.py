"""Features of a speech folder: reads its manifest.jsonl, writes the sets `train` and `held` (dev and test).

The splits are the manifest's, which keeps every speaker in one of them.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from ops.train.data import cache
from ops.train.data.features import log_mel, read_audio


def manifest(speech: Path) -> list[dict[str, Any]]:
    """The lines of the folder's manifest, in its order."""
    with (speech / "manifest.jsonl").open() as lines:
        return [json.loads(line) for line in lines]


def _recordings(speech: Path, splits: tuple[str, ...]) -> Iterator[cache.Named]:
    for row in manifest(speech):
        if row["split"] in splits and row["text"]:
            mels = log_mel(read_audio(speech / row["path"]))
            yield cache.Named(row["id"], row["text"], row["domain"], row["split"], row["speaker"], mels)


def check_speakers(rows: list[dict[str, Any]]) -> None:
    """Raises ValueError when a speaker is in two splits."""
    seen: dict[str, str] = {}
    for row in rows:
        if seen.setdefault(row["speaker"], row["split"]) != row["split"]:
            raise ValueError(f"speaker {row['speaker']} is in {seen[row['speaker']]} and in {row['split']}")


def prepare(speech: Path, folder: Path) -> None:
    """Writes both sets under the folder, unless they are there."""
    check_speakers(manifest(speech))
    for name, splits in (("train", ("train",)), ("held", ("dev", "test"))):
        if (folder / f"{name}.jsonl").exists():
            continue
        frames = cache.write(folder, name, _recordings(speech, splits))
        print(f"{name}: {frames / 360_000:.2f} h of features in {folder}", flush=True)
