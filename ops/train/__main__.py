"""One command from a speech folder to a model folder: `python -m ops.train --speech FOLDER --minutes 60`."""

from __future__ import annotations

import argparse
import signal
import threading
from pathlib import Path

import sentencepiece

from ops.train.cut import cut_digits
from ops.train.export import export
from ops.train.mixture import MIXTURES, BatchOptions, Mixture
from ops.train.network import Network, Shape
from ops.train.prepare import prepare
from ops.train.synth import synthesise
from ops.train.train import Run, TrainOptions
from ops.train.weights import load_into


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
    parser.add_argument("--rate", type=float, default=1e-3, help="highest learning rate")
    parser.add_argument("--hours", type=float, default=20.0, help="synthetic speech")
    parser.add_argument("--mixture", choices=sorted(MIXTURES), default="open", help="what is heard how often")
    parser.add_argument(
        "--heard-by-tdt", type=float, default=1.0, help="share of the utterances in the TDT loss"
    )
    parser.add_argument("--longest", type=int, default=1700, help="feature frames of an utterance")
    parser.add_argument("--stored-norms", action="store_true", help="batch norm by its stored statistics")
    parser.add_argument("--warmup", type=int, default=200, help="steps")
    parser.add_argument("--workers", type=int, default=1, help="processes that make synthetic speech")
    parser.add_argument("--wordless", type=float, default=120.0, help="minutes of sound without words")
    parser.add_argument("--device", choices=("cpu", "cuda"), default="cpu")
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--seed", type=int, default=7)
    return parser.parse_args()


def main() -> None:
    asked = arguments()
    prepare(asked.speech, asked.cache)
    synthesise(asked.speech, asked.cache, asked.hours, asked.wordless, asked.seed, asked.workers)
    tokenizer = sentencepiece.SentencePieceProcessor(model_file=str(asked.tokenizer))
    options = TrainOptions(
        minutes=asked.minutes,
        steps=asked.steps,
        rate=asked.rate,
        threads=asked.threads,
        device=asked.device,
        warmup=asked.warmup,
        stored=asked.stored_norms,
        heard_by_tdt=asked.heard_by_tdt,
        batches=BatchOptions(
            seed=asked.seed, shares=MIXTURES[asked.mixture], longest=asked.longest, process=True
        ),
    )
    run = Run(asked.cache / asked.run, Shape(vocabulary=tokenizer.vocab_size()), options, asked.init)
    if asked.init:
        start = Network(run.network.shape)
        load_into(start, asked.init)
        cut_digits(asked.cache, start, tokenizer.encode)
    if run.take_up():
        print(f"taken up at step {run.step}", flush=True)
    stop = threading.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: stop.set())
    run.work(Mixture(asked.cache), tokenizer.encode, until=stop.is_set)
    if asked.out and not stop.is_set():
        export(run.average, run.network.shape, asked.tokenizer, asked.out)


if __name__ == "__main__":
    main()
