"""One command from a speech folder to a model folder: `python -m ops.train --speech FOLDER --minutes 60`."""

from __future__ import annotations

import argparse
import signal
import threading
from pathlib import Path

import sentencepiece

from ops.train.cut import cut_digits
from ops.train.export import export
from ops.train.mixture import BatchOptions, Mixture
from ops.train.network import Network, Shape
from ops.train.phases import PHASES
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
    parser.add_argument("--rate", type=float, default=1.5e-3, help="highest learning rate")
    parser.add_argument("--hours", type=float, default=20.0, help="synthetic speech")
    parser.add_argument(
        "--heard-by-tdt", type=float, default=0.5, help="share of the utterances in the TDT loss"
    )
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
    shape = Shape(vocabulary=tokenizer.vocab_size())
    whole = TrainOptions(
        minutes=asked.minutes,
        steps=asked.steps,
        rate=asked.rate,
        threads=asked.threads,
        device=asked.device,
        heard_by_tdt=asked.heard_by_tdt,
        batches=BatchOptions(seed=asked.seed, process=True),
    )
    stop = threading.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: stop.set())
    init: Path | None = asked.init
    if init:
        start = Network(shape)
        load_into(start, init)
        cut_digits(asked.cache, start, tokenizer.encode)
    mixture = Mixture(asked.cache)
    for phase in PHASES:
        folder = asked.cache / asked.run / phase.name
        run = Run(folder, shape, phase.options(whole), init)
        taken_up = run.take_up()
        print(f"{phase.name}: {'taken up at' if taken_up else 'from'} step {run.step}", flush=True)
        run.work(mixture, tokenizer.encode, until=stop.is_set)
        if stop.is_set():
            return
        export(run.average, shape, asked.tokenizer, folder)
        init = folder / "model.safetensors"
    if asked.out:
        export(run.average, shape, asked.tokenizer, asked.out)


if __name__ == "__main__":
    main()
