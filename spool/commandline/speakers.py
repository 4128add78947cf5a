"""The flags of both commands that say how many speakers there are."""

from dataclasses import dataclass
from typing import Annotated

from cyclopts import Parameter
from cyclopts.validators import Number

from spool.domain.archive.diarization import MOST_SPEAKERS
from spool.errors import InvalidRequest

_SOME = Number(gte=1, lte=MOST_SPEAKERS)


@Parameter(name="*")
@dataclass(frozen=True, slots=True)
class SpeakerCount:
    """How many speakers there are."""

    speakers: Annotated[int | None, Parameter(validator=_SOME, help="The exact number of speakers.")] = None
    min_speakers: Annotated[
        int | None, Parameter(validator=_SOME, help="The smallest number of speakers.")
    ] = None
    max_speakers: Annotated[
        int | None, Parameter(validator=_SOME, help="The largest number of speakers.")
    ] = None

    def to_request(self) -> int | dict[str, int] | None:
        """The exact number or its bounds, as in a request. Raises InvalidRequest for both."""
        low, high = self.min_speakers, self.max_speakers
        given = {name: value for name, value in (("min", low), ("max", high)) if value is not None}
        if self.speakers is not None and given:
            raise InvalidRequest(
                "--speakers is the exact number: leave --min-speakers and --max-speakers out."
            )
        if low is not None and high is not None and low > high:
            raise InvalidRequest(f"--min-speakers {low} is above --max-speakers {high}.")
        return self.speakers or given or None
