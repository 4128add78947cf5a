"""Which diarization model hears a recording: the one that was asked for, or the default where that cannot.

A Sortformer has a column for each of four speakers, so a fifth is given to one of the four. Whether there are
more is asked of the default diarizer, where all columns are in use and more speakers may be there.
"""

from collections.abc import Callable
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from worker.diarization.base import (
    Blocks,
    Diarization,
    DiarizationModel,
    RunSteps,
    SpeakerBounds,
    SpeechHeard,
    TooLongAtOnce,
)

RunsOf = Callable[[DiarizationModel], RunSteps[Any, Any]]
"""How steps of a model are run."""


class Reason(StrEnum):
    """Why the default diarizer took over."""

    TOO_MANY = "there are more speakers than {name} tells apart"
    TOO_LONG = "the recording is longer than {name} takes at once"

    def sentence(self, name: str) -> str:
        return f"the default diarizer took over: {self.format(name=name)}"


@dataclass(frozen=True, slots=True)
class Heard:
    """Who speaks when, which model says so, and why it is not the one that was asked for, if it is not."""

    diarization: Diarization
    model: DiarizationModel
    reason: Reason | None = None


def hear(
    model: DiarizationModel,
    default: DiarizationModel,
    read: Callable[[], Blocks],
    runs: RunsOf,
    bounds: SpeakerBounds,
    speech: SpeechHeard | None = None,
) -> Heard:
    """Who speaks when in one channel, by `model`, else by `default`. Raises what both raise."""

    def takes_over(reason: Reason) -> Heard:
        return Heard(default.diarize(read, runs(default), bounds, speech), default, reason)

    most = model.most_speakers
    if most is None:
        return Heard(model.diarize(read, runs(model), bounds, speech), model)
    if bounds.least > most:
        return takes_over(Reason.TOO_MANY)
    try:
        result = model.diarize(read, runs(model), bounds, speech)
    except TooLongAtOnce:
        return takes_over(Reason.TOO_LONG)
    if result.speakers == most and bounds.most > most:
        other = takes_over(Reason.TOO_MANY)
        if other.diarization.speakers > most:
            return other
    return Heard(result, model)
