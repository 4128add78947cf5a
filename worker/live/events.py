"""What a live session says: plain data, in the order in which it is known.

Tokens' times are encoder frames from the session's start, all others seconds from there.
"""

from dataclasses import dataclass
from typing import Literal

from spool.domain.transcript import Word
from worker.decode.types import Hypothesis
from worker.live.endpoint import Reason


@dataclass(frozen=True, slots=True)
class Partial:
    """What the utterance seems to be so far, from `start` to `end`. The first `stable` tokens, `stable_text`,
    will not change any more; `words` may, the last one above all."""

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
    """Tokens that are final. All finals together are the session's tokens, each once and in order. heard: how
    much of the recording is certain to be known when they are, however much of it came at once; `end` may lie
    behind that by less than a frame."""

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
    """What a model for dialogue says beside the words: a turn ends (`eou`), a backchannel ends (`eob`)."""

    kind: Literal["eou", "eob"]
    time: float


@dataclass(frozen=True, slots=True)
class SpeechStarted:
    """The speech detector hears somebody again, as far as it can tell since `time`."""

    time: float


@dataclass(frozen=True, slots=True)
class End:
    """Nothing comes after this. nbest: of the whole session, where they were asked for."""

    duration: float
    frames: int
    nbest: tuple[Hypothesis, ...] = ()


Event = Partial | Final | Mark | SpeechStarted | End
