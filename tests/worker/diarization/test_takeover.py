"""When the default diarizer hears a recording in place of the one that was asked for."""

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest

from spool.errors import UnknownModel
from worker.diarization import (
    Blocks,
    Diarization,
    DiarizationModel,
    Reason,
    RunSteps,
    SpeakerBounds,
    SpeakerSegment,
    SpeechHeard,
    TooLongAtOnce,
    hear,
    place_of,
)

HEARD = SpeechHeard(np.zeros(0, np.float32), 0)


class Counted:
    """A model that hears so many speakers, or refuses, and says how often it listened."""

    digest = ""

    def __init__(self, path: str, speakers: int | None, most: int | None = None) -> None:
        self.path, self.speakers, self.most_speakers = path, speakers, most
        self.listened: list[SpeakerBounds] = []

    def diarize(
        self,
        read: Callable[[], Blocks],
        run: RunSteps[Any, Any],
        bounds: SpeakerBounds,
        speech: SpeechHeard | None = None,
    ) -> Diarization:
        assert speech is HEARD
        self.listened.append(bounds)
        assert list(run(iter([]))) == [self.path]
        if self.speakers is None:
            raise TooLongAtOnce
        segments = [SpeakerSegment(number, number + 1, number) for number in range(self.speakers)]
        return Diarization(segments, np.zeros(0, np.float32), 0)


def runs(model: DiarizationModel) -> RunSteps[Any, Any]:
    def run(_steps: Iterator[tuple[Any, Any]]) -> Iterator[Any]:
        yield model.path

    return run


@pytest.mark.parametrize(
    ("hears", "default_hears", "bounds", "by", "reason", "listeners"),
    [
        (3, 9, SpeakerBounds(), "four", None, (1, 0)),
        (4, 5, SpeakerBounds(), "default", Reason.TOO_MANY, (1, 1)),
        (4, 4, SpeakerBounds(), "four", None, (1, 1)),
        (4, 9, SpeakerBounds(1, 4), "four", None, (1, 0)),
        (2, 6, SpeakerBounds(5, 8), "default", Reason.TOO_MANY, (0, 1)),
        (None, 2, SpeakerBounds(), "default", Reason.TOO_LONG, (1, 1)),
    ],
)
def test_who_hears_a_recording(
    hears: int | None,
    default_hears: int,
    bounds: SpeakerBounds,
    by: str,
    reason: Reason | None,
    listeners: tuple[int, int],
) -> None:
    model, default = Counted("four", hears, most=4), Counted("default", default_hears)
    heard = hear(model, default, lambda: iter([]), runs, bounds, HEARD)
    assert (heard.model.path, heard.reason) == (by, reason)
    assert heard.diarization.speakers == (default_hears if by == "default" else hears)
    assert (len(model.listened), len(default.listened)) == listeners
    assert all(each == bounds for each in (*model.listened, *default.listened))


def test_a_model_for_any_number_is_asked_alone() -> None:
    default = Counted("default", 12)
    heard = hear(default, default, lambda: iter([]), runs, SpeakerBounds(5, 20), HEARD)
    assert heard.reason is None
    assert len(default.listened) == 1


def test_names_stand_for_places() -> None:
    assert place_of("default", {}) == "default"
    assert place_of("sortformer", {}) == "diar_streaming_sortformer_4spk-v2.1"
    assert place_of("sortformer", {"sortformer": "/models/own.nemo"}) == "/models/own.nemo"
    assert place_of("nvidia/diar_sortformer_4spk-v1", {}) == "diar_sortformer_4spk-v1"
    for name in ("whisper-base", "/models/own.nemo", "own.nemo"):
        with pytest.raises(UnknownModel, match=r"this worker knows default, sortformer, diar_.*, house\."):
            place_of(name, {"house": "/models/house.nemo"})
