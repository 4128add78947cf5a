"""When an utterance of a live session has ended.

The rules are those of WeNet's runtime (`runtime/core/decoder/ctc_endpoint.h`), with one of the speech
detector's beside them. Pure: seconds in, a reason out.
"""

from dataclasses import dataclass
from typing import Literal

Reason = Literal["silence", "no_speech", "length", "eou", "end"]


@dataclass(frozen=True, slots=True)
class EndpointRules:
    """In seconds; an utterance ends by the first rule that holds.

    silence: behind a word, nothing but silence for so long. unvoiced: behind a word, the detector heard
    nobody for so long, where it listens. empty: silence for so long, words or not. longest: so long since it
    began.
    """

    silence: float = 1.0
    unvoiced: float = 0.8
    empty: float = 5.0
    longest: float = 20.0

    def ended(
        self, *, has_words: bool, silence: float, length: float, unvoiced: float | None = None
    ) -> Reason | None:
        """Why the utterance has ended, None where it goes on. silence: since the search found something;
        length: since the utterance began; unvoiced: since the detector heard somebody."""
        if silence >= self.empty or (has_words and silence >= self.silence):
            return "silence"
        # The search lags behind the voice, and a word may still be on its way.
        is_quiet = unvoiced is not None and unvoiced >= self.unvoiced and silence >= self.unvoiced / 2
        if has_words and is_quiet:
            return "no_speech"
        return "length" if length >= self.longest else None
