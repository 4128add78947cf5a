"""Endpointing: when an utterance of a live session has ended.

The rules of WeNet's runtime (`runtime/core/decoder/ctc_endpoint.h`), and one for the speech detector.
"""

from dataclasses import dataclass
from typing import Literal

Reason = Literal["silence", "no_speech", "length", "eou", "end"]


@dataclass(frozen=True, slots=True)
class EndpointRules:
    """In seconds; an utterance ends by the first rule that holds.

    silence: silence after a word. unvoiced: no speech after a word, according to the detector if it is used.
    empty: silence, with or without words. longest: length of the utterance.
    """

    silence: float = 1.0
    unvoiced: float = 0.8
    empty: float = 5.0
    longest: float = 20.0

    def find_end(
        self, *, has_words: bool, silence: float, length: float, unvoiced: float | None = None
    ) -> Reason | None:
        """Why the utterance has ended, None if it goes on. silence: since the search's last token; length:
        since the utterance began; unvoiced: since the detector's last speech."""
        if silence >= self.empty or (has_words and silence >= self.silence):
            return "silence"
        # The search lags behind the voice, so a word may still come.
        is_quiet = unvoiced is not None and unvoiced >= self.unvoiced and silence >= self.unvoiced / 2
        if has_words and is_quiet:
            return "no_speech"
        return "length" if length >= self.longest else None
