"""All phases of a run one after the other, in one process or in each of a team's."""

from __future__ import annotations

import argparse
from multiprocessing.synchronize import Event
from pathlib import Path

import sentencepiece

from ops.train.data.batches import BatchOptions
from ops.train.data.mixture import Mixture
from ops.train.model.export import export
from ops.train.model.network import Shape
from ops.train.run.phases import PHASES
from ops.train.run.team import Team
from ops.train.run.train import Run, TrainOptions


def train(team: Team, stop: Event, asked: argparse.Namespace) -> None:
    """What the command asks for (`ops.train`), until it is done or told to stop."""
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
    init: Path | None = asked.init
    mixture = Mixture(asked.cache)
    for phase in PHASES:
        folder = asked.cache / asked.run / phase.name
        run = Run(folder, shape, phase.options(whole), init, team)
        taken_up = run.take_up()
        if not team.rank:
            print(f"{phase.name}: {'taken up at' if taken_up else 'from'} step {run.step}", flush=True)
        run.work(mixture, tokenizer.encode, until=stop.is_set)
        if any(team.mean([stop.is_set()])):  # all or none: the others would wait below
            return
        if not team.rank:
            export(run.average, shape, asked.tokenizer, folder)
        team.gathered(None)  # waits until the file is there
        init = folder / "model.safetensors"
    if asked.out and not team.rank:
        export(run.average, shape, asked.tokenizer, asked.out)
