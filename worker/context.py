"""What was heard last in each channel, for the searches that go on from there.

Tokens stand by the sample they were heard at, so that a chunk that overlaps its neighbour goes on from what
was heard before its own first sample, and from no word twice. Knows tokens; no audio, no store.
"""

from worker.assemble import Piece
from worker.decode.hypothesis import CONTEXT_TOKENS, Hypothesis

Tail = tuple[tuple[int, int], ...]
"""Tokens, each with the sample (16 kHz, from the recording's start) it was heard at."""


class Context:
    """The tails of one recording's channels."""

    def __init__(self) -> None:
        self._tails: dict[int, Tail] = {}

    def before(self, piece: Piece) -> tuple[int, ...]:
        """The tokens before the piece's first sample, oldest first."""
        return tuple(token for token, sample in self._heard(piece))

    def after(self, piece: Piece, best: Hypothesis, samples_a_frame: float) -> Tail:
        """What there is to go on from once the piece was heard as `best`."""
        own = [
            (token, piece.start + round(frame * samples_a_frame))
            for token, frame in zip(best.tokens, best.times, strict=True)
        ]
        return (*self._heard(piece), *own)[-CONTEXT_TOKENS:]

    def keep(self, channel: int, tail: Tail) -> None:
        """Go on from here."""
        self._tails[channel] = tail

    def _heard(self, piece: Piece) -> Tail:
        return tuple(heard for heard in self._tails.get(piece.channel, ()) if heard[1] < piece.start)
