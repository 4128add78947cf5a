"""Hits of the search as the API shows them. Pure."""

import math
from collections.abc import Sequence

from spool.domain.archive.passages import Passage, Spoken
from spool.domain.archive.query import Match
from spool.domain.jobs import Job
from spool.domain.spacing import is_apart
from spool.schemas.search import FoundOut, HitOut, MatchOut, SoundOut, SoundsOut
from spool.sounds.queries import SoundQuery
from spool.store.transcripts.search import Hit
from spool.store.transcripts.sound_search import FoundSounds, SoundHit

NEAR = 0.3
"""Seconds by which words and sounds of one place may miss each other."""


SURE = (-1.794, 2.627, 0.516)
"""Log odds that a hit by sound is right among up to an hour: the constant, and what the score and each phone
count (`python -m ops.accuracy.sounds`). Among more, chance finds as many times more that are not."""


def present_hit(hit: Hit) -> HitOut:
    """A hit with its text, and the characters of each match."""
    return _present(hit.job, hit.passage, hit.places, closed=hit.closed)


def present_sounds(query: SoundQuery, found: FoundSounds, written: Sequence[Hit], limit: int) -> FoundOut:
    """The hits by sound and those by words in one list: first what is written so, and of that first what also
    sounds so, then by likeness. A place that both found is one hit."""
    phones = len(query.ways[0])
    hits = [(each, _present_sound(each, phones, found.hours)) for each in found.hits]
    alone = [present_hit(each) for each in written]
    said: list[HitOut] = []
    for one, shown in hits:
        same = [
            each
            for each in alone
            if each.job == one.job.id
            and each.channel == one.channel
            and any(match.start < one.end + NEAR and one.start < match.end + NEAR for match in each.matches)
        ]
        alone = [each for each in alone if each not in same]
        said.append(same[0].model_copy(update={"sound": shown.sound}) if same else shown)
    both = [each for each, (_, shown) in zip(said, hits, strict=True) if each is not shown]
    rest = [each for each, (_, shown) in zip(said, hits, strict=True) if each is shown]
    return FoundOut(
        items=[*both, *alone, *rest][:limit],
        next_cursor=None,
        sounds=SoundsOut(
            phones=query.written,
            source=query.source,
            hours=round(found.hours, 2),
            without_sounds=found.without,
            damaged=list(found.damaged),
        ),
    )


def certainty_of(hit: SoundHit, phones: int, hours: float) -> float:
    """How sure a hit by sound is, of so many phones in so many hours."""
    constant, score, each = SURE
    odds = constant + score * hit.score + each * phones - math.log(max(hours, 1.0))
    return round(1 / (1 + math.exp(-max(min(odds, 30.0), -30.0))), 3)


def _present_sound(hit: SoundHit, phones: int, hours: float) -> HitOut:
    words = hit.passage.words if hit.passage is not None else ()
    inside = [at for at, word in enumerate(words) if word.start < hit.end and hit.start < word.end]
    places = (Match(inside[0], inside[-1]),) if inside else ()
    certainty = certainty_of(hit, phones, hours)
    sound = SoundOut(start=hit.start, end=hit.end, score=round(hit.score, 3), certainty=certainty)
    shown = _present(hit.job, hit.passage, places, closed=hit.closed, start=hit.start, channel=hit.channel)
    return shown.model_copy(update={"sound": sound})


def _present(
    job: Job,
    passage: Passage | None,
    places: Sequence[Match],
    *,
    closed: bool,
    start: float | None = None,
    channel: int = 0,
) -> HitOut:
    text, matches = ("", []) if passage is None else _matches(passage, places)
    start = matches[0].start if start is None else start
    speaker = passage.speaker if passage is not None else None
    return HitOut.of(
        job,
        recording=job.content_sha256 or job.rerun_of or job.id,
        model=job.options.model,
        channel=channel if passage is None else passage.channel,
        speaker=speaker,
        speaker_name=job.speaker_names.get(speaker) if speaker else None,
        start=start,
        text=text,
        matches=matches,
        sound=None,
        url=f"/#/jobs/{job.id}?t={start:g}",
        closed=closed,
    )


def _matches(passage: Passage, places: Sequence[Match]) -> tuple[str, list[MatchOut]]:
    """The passage's text, and the matches in it."""
    text, spans = _lay_out(passage.words)
    return text, [
        MatchOut(
            start=passage.words[place.first].start,
            end=passage.words[place.last].end,
            confidence=place.confidence_in(passage),
            first_character=spans[place.first][0],
            last_character=spans[place.last][1],
            alternative=place.text if place.reading else None,
        )
        for place in places
    ]


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
