"""Writes what the demo model hears in `samples/demo-tdt/` to its words.json, with which a Mac's answers are
compared.

    python -m ops.train.data.hear_samples models/demo

Run it when the model or the samples change. Runs Spool's own engine; needs no PyTorch.
"""

from __future__ import annotations

import json
import sys

from worker.diagnostics.confirm.steps import SAMPLES, WORDS, hear


def main() -> None:
    lines = (SAMPLES / "manifest.jsonl").read_text().splitlines()
    names = [json.loads(line)["file"] for line in lines]
    heard = hear(sys.argv[1], names)
    WORDS.write_text(json.dumps(heard, indent=1) + "\n")
    print(f"{sum(len(words.split()) for words in heard.values())} words in {len(heard)} samples")


if __name__ == "__main__":
    main()
