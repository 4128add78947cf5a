"""One command from a speech folder to a model folder: `python -m ops.train --speech FOLDER --minutes 60`."""

from __future__ import annotations

import argparse
from pathlib import Path

import sentencepiece

from ops.train.data.cut import cut_digits, find_pauses
from ops.train.data.prepare import prepare
from ops.train.data.synth import synthesise
from ops.train.data.work import train
from ops.train.model.network import Network, Shape
from ops.train.model.weights import load_into
from ops.train.run.team import together


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m ops.train", description=__doc__)
    parser.add_argument("--speech", type=Path, required=True, help="folder with manifest.jsonl")
    parser.add_argument("--cache", type=Path, default=Path("var/train"), help="features and checkpoints")
    parser.add_argument("--run", default="run", help="name of the run under the cache folder")
    parser.add_argument("--tokenizer", type=Path, default=Path("models/demo/tokenizer.model"))
    parser.add_argument("--init", type=Path, help="weights to begin from; without them, random ones")
    parser.add_argument("--out", type=Path, help="model folder to write at the end")
    parser.add_argument("--minutes", type=float, default=60.0, help="wall clock of the training itself")
    parser.add_argument("--steps", type=int, default=0, help="instead of the minutes")
    parser.add_argument("--rate", type=float, default=1.5e-3, help="highest learning rate")
    parser.add_argument("--hours", type=float, default=20.0, help="synthetic speech")
    parser.add_argument(
        "--heard-by-tdt", type=float, default=0.5, help="share of the utterances in the TDT loss"
    )
    parser.add_argument("--workers", type=int, default=1, help="processes that make synthetic speech")
    parser.add_argument(
        "--processes", type=int, default=1, help="that train together, each on batches of its own"
    )
    parser.add_argument("--wordless", type=float, default=120.0, help="minutes of sound without words")
    parser.add_argument("--device", choices=("cpu", "cuda"), default="cpu")
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--seed", type=int, default=7)
    return parser.parse_args()


def main() -> None:
    asked = arguments()
    prepare(asked.speech, asked.cache)
    synthesise(asked.speech, asked.cache, asked.hours, asked.wordless, asked.seed, asked.workers)
    if asked.init:
        tokenizer = sentencepiece.SentencePieceProcessor(model_file=str(asked.tokenizer))
        start = Network(Shape(vocabulary=tokenizer.vocab_size()))
        load_into(start, asked.init)
        cut_digits(asked.cache, start, tokenizer.encode)
        find_pauses(asked.cache, start, tokenizer.encode)
    together(asked.processes, train, (asked,))


if __name__ == "__main__":
    main()
