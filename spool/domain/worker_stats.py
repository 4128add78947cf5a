"""What one worker process counted since it started: batches, padding, time, and how its attempts ended.

Every number only grows while the process lives, so that sums over the processes of one worker only grow too.
Plain data that goes to the database as JSON with each sign of life; knows no clock and no SQL.
"""

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field, fields, replace
from typing import Any

SIZE_BOUNDS = (1, 2, 4, 8, 16, 32, 64, 128)
"""Upper bounds of the classes of batch sizes, in utterances; larger ones are in a class of their own."""


@dataclass(frozen=True, slots=True)
class WorkCounts:
    """Sums since the process started; times in nanoseconds, audio in samples at 16 kHz.

    `audio_samples` is what finished chunks cover, each sample once; `utterance_samples` what the engine was
    given, overlaps included, and `padding_samples` what it computed beside that because a batch is as wide as
    its longest utterance. `sizes` counts batches by class of `SIZE_BOUNDS`, the last one for larger ones.
    `junk_messages` counts what came through the broker and was no hint; `attempts` counts by ending and error
    code, as `"failed/audio_empty"`.
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
    sizes: tuple[int, ...] = (0,) * (len(SIZE_BOUNDS) + 1)
    attempts: Mapping[str, int] = field(default_factory=dict)

    def with_batch(self, lengths: tuple[int, ...]) -> "WorkCounts":
        """These and one more batch, of utterances of these lengths in samples."""
        if not lengths:
            return self
        place = next((i for i, bound in enumerate(SIZE_BOUNDS) if len(lengths) <= bound), len(SIZE_BOUNDS))
        return replace(
            self,
            utterance_samples=self.utterance_samples + sum(lengths),
            padding_samples=self.padding_samples + max(lengths) * len(lengths) - sum(lengths),
            utterances=self.utterances + len(lengths),
            sizes=tuple(number + (i == place) for i, number in enumerate(self.sizes)),
        )

    def __add__(self, other: "WorkCounts") -> "WorkCounts":
        told = {one.name: getattr(self, one.name) + getattr(other, one.name) for one in _plain()}
        sizes = tuple(mine + theirs for mine, theirs in zip(self.sizes, other.sizes, strict=True))
        return WorkCounts(
            **told, sizes=sizes, attempts=dict(Counter(self.attempts) + Counter(other.attempts))
        )

    def document(self) -> dict[str, Any]:
        """As JSON."""
        told = {one.name: getattr(self, one.name) for one in _plain()}
        return told | {"sizes": list(self.sizes), "attempts": dict(self.attempts)}


def counts_of(document: Mapping[str, Any] | None) -> WorkCounts:
    """What `document` made; what a worker of another version did not count is 0."""
    if not document:
        return WorkCounts()
    told = {one.name: int(document.get(one.name, 0)) for one in _plain()}
    empty = WorkCounts()
    sizes = tuple(int(number) for number in document.get("sizes", ()))
    return replace(
        empty,
        **told,
        sizes=sizes if len(sizes) == len(empty.sizes) else empty.sizes,
        attempts={str(name): int(number) for name, number in document.get("attempts", {}).items()},
    )


def _plain() -> list[Any]:
    return [one for one in fields(WorkCounts) if one.name not in ("sizes", "attempts")]
