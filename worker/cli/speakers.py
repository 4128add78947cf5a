"""The options about speakers that commands share."""

from typing import Annotated

import typer

from spool.domain.archive.diarization import MOST_SPEAKERS, Diarization, SpeakerRange
from spool.errors import InvalidRequest

SpeakerCount = Annotated[
    int | None, typer.Option(min=1, max=MOST_SPEAKERS, help="The exact number of speakers.")
]
LeastSpeakers = Annotated[
    int | None, typer.Option(min=1, max=MOST_SPEAKERS, help="The smallest number of speakers.")
]
MostSpeakers = Annotated[
    int | None, typer.Option(min=1, max=MOST_SPEAKERS, help="The largest number of speakers.")
]


def diarization_of(speakers: int | None, least: int | None, most: int | None) -> Diarization:
    """The requested diarization. Raises InvalidRequest if the options contradict each other."""
    if least is None and most is None:
        return Diarization(speakers=speakers)
    if speakers is not None:
        raise InvalidRequest("--speakers is the exact number: leave --min-speakers and --max-speakers out")
    low, high = least or 1, most or MOST_SPEAKERS
    if low > high:
        raise InvalidRequest(f"--min-speakers {low} is above --max-speakers {high}")
    return Diarization(speakers=SpeakerRange(min=low, max=high))
