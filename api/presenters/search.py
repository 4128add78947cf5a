"""Hits of the search as the API shows them. Pure."""

from spool.domain.archive.passages import Spoken
from spool.domain.spacing import is_apart
from spool.schemas.search import HitOut, MatchOut
from spool.store.transcripts.search import Hit


def present_hit(hit: Hit) -> HitOut:
    """A hit with its text, and the characters of each match."""
    job, passage = hit.job, hit.passage
    text, spans = _lay_out(passage.words)
    matches = [
        MatchOut(
            start=passage.words[place.first].start,
            end=passage.words[place.last].end,
            confidence=place.confidence_in(passage),
            first_character=spans[place.first][0],
            last_character=spans[place.last][1],
            alternative=place.text if place.reading else None,
        )
        for place in hit.places
    ]
    start = matches[0].start
    return HitOut.of(
        job,
        recording=job.content_sha256 or job.rerun_of or job.id,
        model=job.options.model,
        channel=passage.channel,
        speaker=passage.speaker,
        speaker_name=job.speaker_names.get(passage.speaker) if passage.speaker else None,
        start=start,
        text=text,
        matches=matches,
        url=f"/#/jobs/{job.id}?t={start:g}",
        closed=hit.closed,
    )


def _lay_out(words: tuple[Spoken, ...]) -> tuple[str, list[tuple[int, int]]]:
    """The words as text, with spaces if their script uses them, and the position of each."""
    text = ""
    spans = []
    for word in words:
        if text and is_apart(text, word.text):
            text += " "
        spans.append((len(text), len(text) + len(word.text)))
        text += word.text
    return text, spans
