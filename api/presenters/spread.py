"""The places that a correction can spread to, as the API shows them. Pure."""

from urllib.parse import urlencode

from api.presenters.search import certainty_of
from spool.schemas.edits import SpreadOut, SpreadPlace
from spool.store.transcripts.spread import FoundPlaces, Place

AROUND = 1.0
"""Seconds of a clip before and after the words."""


def present_places(found: FoundPlaces) -> SpreadOut:
    """Each with its clip."""
    hours = found.sounds.hours if found.sounds is not None else 0.0
    return SpreadOut(
        names=list(found.names),
        items=[_present(place, hours) for place in found.places],
        hours=round(hours, 2),
        without_sounds=found.sounds.without if found.sounds is not None else 0,
    )


def _present(place: Place, hours: float) -> SpreadPlace:
    sound = None if place.sound is None else certainty_of(place.sound, place.phones, hours)
    job = place.job
    end = place.end + AROUND if job.audio_seconds is None else min(place.end + AROUND, job.audio_seconds)
    times = urlencode({"start": round(max(0.0, place.start - AROUND), 3), "end": round(end, 3)})
    return SpreadPlace.of(
        place,
        job=job.id,
        name=job.name,
        model=job.options.model,
        seen=place.revision,
        found_by=list(place.found_by),
        certainty=sound,
        clip=f"/v1/jobs/{job.id}/clip?{times}",
        audio=f"/v1/jobs/{job.id}/clip/audio?{times}",
    )
