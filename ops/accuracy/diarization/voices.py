"""Whether a voice is recognised in another recording: what docs/speakers.md says of voice prints.

    OPENBLAS_NUM_THREADS=1 .venv/bin/python -m ops.accuracy.diarization.voices SPEECH [--speakers 60]

SPEECH is the folder with `manifest.jsonl`. The clips of each speaker make two recordings of 20 s or more,
each of which gets a voice print as in a job. Prints of one speaker are compared with one another and with
those of all others.
"""

# ruff: noqa: E402 - the BLAS has to be loaded before MLX is

import argparse
import json
from collections import defaultdict
from itertools import combinations
from pathlib import Path

from worker.machine.blas import preload_blas

preload_blas()

import numpy as np
import soundfile
from numpy.typing import NDArray

from ops.accuracy.diarization.speakers import blocks_of
from spool.domain.archive.voices import SAME_VOICE
from worker.diarization.clustering import ClusterOptions
from worker.diarization.diarizer import DiarizeOptions, Diarizer

Floats = NDArray[np.float32]
SECONDS = 20.0
GAP = np.zeros(8_000, np.float32)


def recordings_of(folder: Path, splits: set[str], domains: set[str]) -> dict[str, list[Floats]]:
    """Two recordings of each speaker of whom there is enough, clips in the manifest's order."""
    clips: dict[str, list[tuple[str, float]]] = defaultdict(list)
    for line in (folder / "manifest.jsonl").read_text().splitlines():
        entry = json.loads(line)
        if entry["split"] in splits and entry["domain"] in domains:
            clips[entry["speaker"]].append((entry["path"], entry["duration"]))
    pairs = {}
    for speaker, own in sorted(clips.items()):
        halves = [own[0::2], own[1::2]]
        if min(sum(seconds for _, seconds in half) for half in halves) >= SECONDS:
            pairs[speaker] = [_joined(folder, [path for path, _ in half]) for half in halves]
    return pairs


def _joined(folder: Path, paths: list[str]) -> Floats:
    parts: list[Floats] = []
    for path in paths:
        samples, rate = soundfile.read(folder / path, dtype="float32")
        assert rate == 16_000
        parts += [samples, GAP]
    return np.concatenate(parts)


def print_of(diarizer: Diarizer, samples: Floats) -> Floats | None:
    alone = DiarizeOptions(clusters=ClusterOptions(min_speakers=1, max_speakers=1))
    return diarizer.diarize(lambda: blocks_of(samples), alone).prints.get(0)


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m ops.accuracy.diarization.voices", description=__doc__)
    parser.add_argument("speech", type=Path)
    parser.add_argument("--speakers", type=int, default=60)
    parser.add_argument("--splits", nargs="+", default=["train", "test"])
    parser.add_argument("--domains", nargs="+", default=["so762", "libri"])
    args = parser.parse_args()
    pairs = recordings_of(args.speech, set(args.splits), set(args.domains))
    names = list(pairs)[: args.speakers]
    diarizer = Diarizer()
    prints = {name: [print_of(diarizer, one) for one in pairs[name]] for name in names}
    heard = {name: [one for one in both if one is not None] for name, both in prints.items()}
    same = np.array([float(both[0] @ both[1]) for both in heard.values() if len(both) == 2])
    other = np.array([float(a @ b) for x, y in combinations(heard, 2) for a in heard[x] for b in heard[y]])
    print(f"{len(names)} speakers, {len(same)} pairs of one voice, {len(other)} of two")
    print(f"cosine, one voice: median {np.median(same):.3f}, lowest {same.min():.3f}")
    print(f"cosine, two voices: median {np.median(other):.3f}, highest {other.max():.3f}")
    print("| threshold | voices missed | others taken for it | best is right |\n| --- | ---: | ---: | ---: |")
    right = _ranked(heard)
    for threshold in (0.75, 0.80, SAME_VOICE, 0.90):
        missed, wrong = float((same < threshold).mean()), float((other >= threshold).mean())
        print(f"| {threshold:.2f} | {missed:.1%} | {wrong:.2%} | {right:.1%} |")


def _ranked(heard: dict[str, list[Floats]]) -> float:
    """How often the second recording's print is nearest to its own speaker's first, of all first ones."""
    full = [both for both in heard.values() if len(both) == 2]
    first, second = (np.stack([both[at] for both in full]) for at in (0, 1))
    return float(((second @ first.T).argmax(1) == np.arange(len(full))).mean())


if __name__ == "__main__":
    main()
