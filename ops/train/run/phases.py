"""The two parts of a training run: most of the learning, then less of the open speech at a falling rate.

Knows what each part hears and how its rate falls; trains nothing.
"""

from __future__ import annotations

from dataclasses import dataclass

from ops.train.data.batches import BatchOptions
from ops.train.data.mixture import FINAL, OPEN
from ops.train.run.train import TrainOptions


@dataclass(frozen=True)
class Phase:
    """One part. schedule: its share of the run, along which the rate falls; end: how far down it goes."""

    name: str
    shares: dict[str, float]
    schedule: float
    end: float
    rate: float  # of the run's highest
    warmup: int  # steps
    longest: int  # feature frames of an utterance
    stored: bool
    masked: float  # share of the utterances

    def options(self, whole: TrainOptions) -> TrainOptions:
        """The part's options, of those of the whole run."""
        batches = BatchOptions(
            seed=whole.batches.seed,
            shares=self.shares,
            longest=self.longest,
            masked=self.masked,
            process=whole.batches.process,
        )
        return TrainOptions(
            minutes=whole.minutes * self.schedule,
            steps=round(whole.steps * self.schedule),
            end=self.end,
            rate=whole.rate * self.rate,
            warmup=self.warmup,
            heard_by_tdt=whole.heard_by_tdt,
            stored=self.stored,
            threads=whole.threads,
            device=whole.device,
            batches=batches,
        )


# The final part begins at about the rate that the open one ends at, and hears half of the utterances whole.
PHASES = (
    Phase(
        "open", OPEN, schedule=0.85, end=0.68, rate=1.0, warmup=200, longest=1700, stored=False, masked=1.0
    ),
    Phase("final", FINAL, schedule=0.42, end=1.0, rate=0.3, warmup=40, longest=2600, stored=True, masked=0.5),
)
