"""The counters of one worker process: batches, padding, time, and how its attempts ended.

Every counter only grows while the process lives, so the sums over a worker's processes only grow too. Plain
data that goes to the database as JSON with each heartbeat; no clock and no SQL.
"""

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field, fields, replace
from typing import Annotated

from pydantic import AfterValidator

SIZE_BOUNDS = (1, 2, 4, 8, 16, 32, 64, 128)
"""Upper bounds of the histogram of device batch sizes, in utterances; one more class for larger ones."""

REFUSED = "refused"
"""The outcome of an attempt after which the job is left to other workers."""


NO_SIZES = (0,) * (len(SIZE_BOUNDS) + 1)


def _drop_foreign_sizes(sizes: tuple[int, ...]) -> tuple[int, ...]:
    """Those of a worker of another version may be of other classes."""
    return sizes if len(sizes) == len(NO_SIZES) else NO_SIZES


@dataclass(frozen=True, slots=True)
class WorkCounts:
    """Sums since the process started; times in nanoseconds, audio in samples at 16 kHz.

    `audio_samples` counts each sample of finished chunks once; `utterance_samples` those sent to the engine,
    overlaps included, and `padding_samples` those that it computed in addition because a device batch is as
    wide as its longest utterance. `sizes` counts device batches by class of `SIZE_BOUNDS`, the last one for
    larger ones. `junk_messages` counts broker messages that were no hint; `attempts` counts by outcome and
    error code, as `"failed/audio_empty"`.
    """

    idle_ns: int = 0
    load_ns: int = 0
    lost_ns: int = 0
    restarts: int = 0
    junk_messages: int = 0
    audio_samples: int = 0
    utterance_samples: int = 0
    padding_samples: int = 0
    utterances: int = 0
    sizes: Annotated[tuple[int, ...], AfterValidator(_drop_foreign_sizes)] = NO_SIZES
    attempts: Mapping[str, int] = field(default_factory=dict)

    @property
    def refused(self) -> int:
        """Attempts at jobs that the worker returned because it cannot run them."""
        return sum(number for name, number in self.attempts.items() if name.startswith(REFUSED + "/"))

    def with_batch(self, lengths: tuple[int, ...]) -> "WorkCounts":
        """These counts plus one device batch of utterances of these lengths in samples."""
        if not lengths:
            return self
        size_class = next(
            (i for i, bound in enumerate(SIZE_BOUNDS) if len(lengths) <= bound), len(SIZE_BOUNDS)
        )
        return replace(
            self,
            utterance_samples=self.utterance_samples + sum(lengths),
            padding_samples=self.padding_samples + max(lengths) * len(lengths) - sum(lengths),
            utterances=self.utterances + len(lengths),
            sizes=tuple(number + (i == size_class) for i, number in enumerate(self.sizes)),
        )

    def __add__(self, other: "WorkCounts") -> "WorkCounts":
        sums = {name: getattr(self, name) + getattr(other, name) for name in _scalars()}
        sizes = tuple(a + b for a, b in zip(self.sizes, other.sizes, strict=True))
        attempts = dict(Counter(self.attempts) + Counter(other.attempts))
        return WorkCounts(**sums, sizes=sizes, attempts=attempts)


def _scalars() -> list[str]:
    return [item.name for item in fields(WorkCounts) if item.name not in ("sizes", "attempts")]
