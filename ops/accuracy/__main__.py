"""Runs every accuracy measurement and writes the figures into a document, below the text that is there:

    .venv/bin/python -m ops.accuracy models/demo --speech speech \
        --synthetic var/train/synth_test --out docs/accuracy.md

Takes about three minutes of one core. Runs Spool's own engine and needs no PyTorch.
"""

# ruff: noqa: E402 - the BLAS has to be loaded before MLX is

from __future__ import annotations

import argparse
import tempfile
import time
from pathlib import Path

from worker.machine.blas import preload_blas

preload_blas()

import mlx.core as mx

from ops.accuracy import sections
from ops.accuracy.ways import BASE, ORDER, all_ways, language_model, sampled, training_text
from worker.models.load import load_model
from worker.models.nemo.model import NemoModel

MARK = "<!-- From here on written by `python -m ops.accuracy`. -->"


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m ops.accuracy", description=__doc__)
    parser.add_argument("model", type=Path, help="model folder")
    parser.add_argument("--speech", type=Path, required=True, help="folder with manifest.jsonl")
    parser.add_argument("--synthetic", type=Path, help="folder of held-out synthetic speech")
    parser.add_argument("--most", type=int, default=120, help="utterances of a set")
    parser.add_argument("--out", type=Path, required=True, help="document; its plot is written beside it")
    return parser.parse_args()


def figures(asked: argparse.Namespace, work: Path) -> tuple[str, str]:
    """The document's figures and the plot."""
    began, clock = time.monotonic(), time.process_time()
    model, half = load_model(asked.model, mx.float32), load_model(asked.model, mx.bfloat16)
    if not isinstance(model, NemoModel) or not isinstance(half, NemoModel):
        raise SystemExit(f"{asked.model} is no FastConformer model")
    sets = sampled(asked.speech, asked.synthetic, asked.most)
    lines, lm = training_text(asked.speech), work / "lm.arpa"
    grams = language_model(lm, lines, model.tokenizer.encode, model.tokenizer.pieces)
    vocabulary = sorted({word for line in lines for word in line.split() if len(word) > 3})
    found = sections.listen(model, sets, all_ways(lm, vocabulary))
    words, plot = sections.confidence(found[BASE], sets, f"{asked.out.stem}-confidence.svg")
    count = sum(map(len, sets.values()))
    parts = [
        f"\nModel `{model.name}`, SHA-256 `{model.info.sha256[:12]}`; at most {asked.most} utterances of a",
        f"set, {count} in all. LM: {grams} n-grams of pieces (order {ORDER}) of {len(lines)} training lines.",
        *sections.decoding(found, sets),
        *sections.sameness(model, half, found, sets),
        *sections.long_ones(model, asked.speech),
        *words,
    ]
    minutes, busy = (time.monotonic() - began) / 60, (time.process_time() - clock) / 60
    parts.append(f"This took {minutes:.0f} minutes by the clock, {busy:.0f} of the processor.\n")
    return "\n".join(parts), plot


def main() -> None:
    """Measures and writes."""
    asked = arguments()
    with tempfile.TemporaryDirectory() as work:
        text, plot = figures(asked, Path(work))
    before = asked.out.read_text().split(MARK)[0] if asked.out.exists() else "# Accuracy\n\n"
    asked.out.write_text(before + MARK + "\n" + text)
    asked.out.with_name(f"{asked.out.stem}-confidence.svg").write_text(plot)


if __name__ == "__main__":
    main()
