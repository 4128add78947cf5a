"""Makes `whisper_weights.json`: what openai-whisper answers to recordings of the samples with tiny.en.

    python -m tests.golden.make_whisper_weights DUMPS

DUMPS holds .npz files of openai-whisper's answers, each with the SHA-256 of its recording's samples. Kept are
those in float32 with padded audio whose recording is in the repository: greedy tokens, the n-best list of
every beam, and when the tokens of the text began.
"""

import hashlib
import json
import sys
from pathlib import Path
from typing import Any

import numpy as np
import soundfile

OUT = Path(__file__).with_name("whisper_weights.json")
SAMPLES = Path(__file__).parents[2] / "samples" / "open"
MODEL = "tiny.en"


def unpadded(rows: np.ndarray) -> list[list[int]]:
    """Token lists of unlike lengths, which are filled up with -1."""
    return [row[row >= 0].tolist() for row in rows]


def recordings() -> dict[str, str]:
    """The 16 kHz mono recordings of the samples by the SHA-256 of their float32 samples."""
    by_hash = {}
    for path in sorted(SAMPLES.rglob("*.flac")):
        samples, rate = soundfile.read(path, dtype="int16")
        if rate == 16_000 and samples.ndim == 1:
            floats = (samples.astype(np.float32) / 32768).astype("<f4")
            by_hash[hashlib.sha256(floats.tobytes()).hexdigest()] = str(path.relative_to(SAMPLES))
    return by_hash


def entry(file: str, dump: Any, options: dict[str, Any]) -> dict[str, Any]:
    """What is kept of one dump."""
    lists = {}
    for beam in options["beams"]:
        key = f"openai.k{beam}"
        lists[str(beam)] = {
            "tokens": unpadded(dump[f"{key}.tokens"]),
            "scores": [round(float(score), 4) for score in dump[f"{key}.score"]],
            "best": int(dump[f"{key}.best"]),
        }
    return {
        "file": file,
        "prompt": dump["prompt"].tolist(),
        "timestamps": options["timestamps"],
        "patience": options["patience"],
        "greedy": dump["greedy.tokens"].tolist(),
        "greedy_score": round(float(dump["greedy.score"]), 4),
        "nbest": lists,
        "text": dump["align.tokens"].tolist(),
        "starts": [round(float(start), 2) for start in dump["align.starts"]],
        "no_speech": float(dump["sot.no_speech"]),
    }


def main(folder: str) -> None:
    files, kept = recordings(), []
    for path in sorted(Path(folder).glob("*.npz")):
        dump = np.load(path)
        options = json.loads(str(dump["options"]))
        file = files.get(str(dump["sha256"]))
        plain = options["pad"] == "audio" and options["length_penalty"] is None and options["most"] == 224
        if file and plain and str(dump["model"]) == MODEL:
            kept.append(entry(file, dump, options))
    OUT.write_text(json.dumps(kept, indent=None, separators=(",", ":")) + "\n")
    print(f"{OUT}: {len(kept)} recordings, {OUT.stat().st_size} bytes")


if __name__ == "__main__":
    main(sys.argv[1])
