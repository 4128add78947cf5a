"""The record of a transcript, of which a correction reads only the words that it needs."""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Protocol

from spool.domain.transcript import Speaker, Transcript, Word


class Record(Protocol):
    """A transcript as it was recognised."""

    @property
    def words(self) -> Sequence[Word]: ...
    @property
    def speakers(self) -> Sequence[Speaker]: ...

    @property
    def around(self) -> Transcript:
        """The transcript; its words and segments may be missing."""

    def read(self) -> Transcript:
        """The whole transcript."""

    def is_in_order(self, channels: Sequence[int]) -> bool:
        """Whether the words of these channels, in ascending order, follow each other. False if that is not
        known."""


@dataclass(frozen=True, slots=True)
class WholeRecord:
    """A record that was read whole."""

    around: Transcript

    @property
    def words(self) -> Sequence[Word]:
        return self.around.words

    @property
    def speakers(self) -> Sequence[Speaker]:
        return self.around.speakers

    def read(self) -> Transcript:
        return self.around

    def is_in_order(self, channels: Sequence[int]) -> bool:
        """Whether the words of these channels follow each other."""
        own = [word.channel for word in self.around.words if word.channel in channels]
        return all(one <= other for one, other in pairwise(own))
