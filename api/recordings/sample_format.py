"""How a recording's samples are written in a WAV file, and the problem of those that cannot be told apart."""

from dataclasses import dataclass

from api.problems import Problem
from spool.recordings.silence import Layout

PCM, FLOAT = 1, 3


class CannotCut(Problem):
    """The recording's samples cannot be told apart here."""

    def __init__(self, reason: str) -> None:
        super().__init__(409, "cannot_cut", reason)


@dataclass(frozen=True, slots=True)
class SampleFormat:
    """How samples are written in a WAV file: by its tag, channels, rate and bits."""

    tag: int
    channels: int
    rate: int
    bits: int
    frame: int
    """Bytes of a sample of all channels."""

    @property
    def layout(self) -> Layout:
        """How they lie in the file."""
        return Layout(self.rate, self.frame, self.bits)
