"""Events of a live session, in the order in which they become known.

Tokens' times are encoder frames from the session's start; all other times are seconds from there.
"""

from dataclasses import dataclass
from typing import Literal

from spool.domain.recognition import Hypothesis
from spool.domain.transcript import Word
from worker.live.endpoint import Reason


@dataclass(frozen=True, slots=True)
class Partial:
    """The utterance so far, from `start` to `end`. The first `stable` tokens, `stable_text`, will not change
    any more; `words` may, especially the last one."""

    start: float
    end: float
    text: str
    stable_text: str
    tokens: tuple[int, ...]
    times: tuple[int, ...]
    stable: int
    words: tuple[Word, ...]


@dataclass(frozen=True, slots=True)
class Final:
    """Final tokens. All finals together are the session's tokens, each once and in order. heard: how much of
    the recording must be known for them, independent of block sizes; `end` may be later by less than a frame.
    """

    reason: Reason
    start: float
    end: float
    heard: float
    text: str
    tokens: tuple[int, ...]
    times: tuple[int, ...]
    durations: tuple[int, ...]
    words: tuple[Word, ...]


@dataclass(frozen=True, slots=True)
class Mark:
    """A mark of a dialogue model: a turn ends (`eou`) or a backchannel ends (`eob`)."""

    kind: Literal["eou", "eob"]
    time: float


@dataclass(frozen=True, slots=True)
class SpeechStarted:
    """The speech detector hears speech again, since about `time`."""

    time: float


@dataclass(frozen=True, slots=True)
class End:
    """The last event. nbest: hypotheses of the whole session, if asked for."""

    duration: float
    frames: int
    nbest: tuple[Hypothesis, ...] = ()


Event = Partial | Final | Mark | SpeechStarted | End
