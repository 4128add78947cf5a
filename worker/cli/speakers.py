"""The options about speakers that commands share."""

from dataclasses import dataclass
from typing import Annotated

from cyclopts import Parameter
from cyclopts.validators import Number

from spool.domain.archive.diarization import MOST_SPEAKERS, Diarization, SpeakerRange
from spool.errors import InvalidRequest

_SOME = Number(gte=1, lte=MOST_SPEAKERS)


@Parameter(name="*")
@dataclass(frozen=True, slots=True)
class Speakers:
    """How many speakers there are."""

    speakers: Annotated[int | None, Parameter(validator=_SOME, help="The exact number of speakers.")] = None
    min_speakers: Annotated[
        int | None, Parameter(validator=_SOME, help="The smallest number of speakers.")
    ] = None
    max_speakers: Annotated[
        int | None, Parameter(validator=_SOME, help="The largest number of speakers.")
    ] = None

    @property
    def is_given(self) -> bool:
        """Whether any of them is known."""
        return any((self.speakers, self.min_speakers, self.max_speakers))


def diarization_of(known: Speakers) -> Diarization:
    """The requested diarization. Raises InvalidRequest if the options contradict each other."""
    if known.min_speakers is None and known.max_speakers is None:
        return Diarization(speakers=known.speakers)
    if known.speakers is not None:
        raise InvalidRequest("--speakers is the exact number: leave --min-speakers and --max-speakers out")
    low, high = known.min_speakers or 1, known.max_speakers or MOST_SPEAKERS
    if low > high:
        raise InvalidRequest(f"--min-speakers {low} is above --max-speakers {high}")
    return Diarization(speakers=SpeakerRange(min=low, max=high))
