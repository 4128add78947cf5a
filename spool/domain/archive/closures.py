"""What of a recording is closed to readers: whole, a range of time or a speaker, until a date or for good.

Pure. A closure belongs to a recording, so that no other version of it opens what is closed, and the original
is never changed. `ClosedParts` decides what a reader sees and hears of one job; every way out asks it.
"""

from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime
from itertools import accumulate
from typing import Literal, Protocol

from spool.domain.archive.edits import Edit, Recognised, rebuild_words
from spool.domain.columns import Id, Label, Name, Sha256
from spool.domain.jobs import Job
from spool.domain.transcript import ClosedSpan, Segment, Speaker, Transcript, Turn, Word
from spool.errors import InvalidRequest

Kind = Literal["whole", "range", "speaker"]
PLACEHOLDER = "[closed]"
"""What stands in a transcript for closed words."""
BY_DATE = "date"
"""Who opened a closure whose date has come."""
_FOREVER = float("inf")
_AROUND = 0.1
"""Seconds that are closed around the words of a speaker, whose times are not exact."""


@dataclass(frozen=True)
class NewClosure:
    """What is to be closed. The times are seconds of the recording; `until`: None for good."""

    kind: Kind
    start_seconds: float | None
    end_seconds: float | None
    speaker: Label | None
    until: datetime | None
    reason: str
    created_by: Name


@dataclass(frozen=True, kw_only=True)
class Closure(NewClosure):
    """A closure as its row was read."""

    id: Id
    project: Name
    job_id: Id
    """The job that it was made on: labels of speakers are those of its transcript."""
    recording: Id
    """The first job on the recording."""
    content_sha256: Sha256 | None
    """Of the recording, if it was known: other jobs with the same bytes are closed too."""
    transcript_sha256: Sha256 | None
    """The transcript that had the speaker's label."""
    speaker_name: Name | None
    spans: list[list[float]]
    """What it closes, as starts and ends in seconds; empty for a whole recording."""
    created_at: datetime
    lifted_at: datetime | None
    lifted_by: Name | None
    """A key's id, `operator`, `anybody`, or `date`."""


def check_closure(new: NewClosure, now: datetime, audio_seconds: float | None) -> None:
    """Raise InvalidRequest for a closure that makes no sense."""
    if (new.kind == "range") != (new.start_seconds is not None and new.end_seconds is not None):
        raise InvalidRequest("A range needs `start` and `end`, and nothing else may have them.")
    if (new.kind == "speaker") != (new.speaker is not None):
        raise InvalidRequest("A closed speaker needs `speaker`, and nothing else may have one.")
    if new.start_seconds is not None and new.end_seconds is not None:
        if new.start_seconds >= new.end_seconds:
            raise InvalidRequest(
                f"start: {new.start_seconds:g} s is not before the end, {new.end_seconds:g} s."
            )
        if audio_seconds is not None and new.end_seconds > audio_seconds + 1:
            raise InvalidRequest(
                f"end: {new.end_seconds:g} s is beyond the end of the recording at {audio_seconds:.1f} s."
            )
    if new.until is not None and new.until <= now:
        raise InvalidRequest(f"until: {new.until:%Y-%m-%d %H:%M} UTC is in the past.")


def spans_of(new: NewClosure, transcript: Transcript | None) -> list[list[float]]:
    """The times that a closure closes, whole words included. Raises InvalidRequest for an unknown speaker."""
    if new.kind == "whole":
        return []
    words = transcript.words if transcript is not None else ()
    if new.kind == "range":
        assert new.start_seconds is not None
        assert new.end_seconds is not None
        own = [(new.start_seconds, new.end_seconds)]
        closed = _Spans(own)
        inside = [(word.start, word.end) for word in words if closed.meet(word.start, word.end)]
        return _merged([*own, *inside])
    labels = [each.label for each in transcript.speakers] if transcript is not None else []
    if new.speaker not in labels:
        raise InvalidRequest(
            f"speaker: there is no {new.speaker}; the speakers are: {', '.join(labels) or 'none'}."
        )
    assert transcript is not None
    return speaker_spans(transcript, new.speaker)


def speaker_spans(transcript: Transcript, label: str) -> list[list[float]]:
    """When this speaker speaks, with what lies right around it."""
    spoken = [(word.start, word.end) for word in transcript.words if word.speaker == label]
    spoken += [(turn.start, turn.end) for turn in transcript.turns if turn.speaker == label]
    return _merged((max(0.0, start - _AROUND), end + _AROUND) for start, end in spoken)


class _Timed(Protocol):
    """What has a place in the recording."""

    @property
    def start(self) -> float: ...
    @property
    def end(self) -> float: ...


@dataclass(frozen=True, slots=True)
class ClosedParts:
    """What is closed of one job to a reader; nothing, if there are no closures."""

    job_id: str
    closures: tuple[Closure, ...] = ()
    labels: frozenset[str] = frozenset()
    """The closed speakers of its transcript."""

    @classmethod
    def of(cls, job: Job, closures: Iterable[Closure]) -> "ClosedParts":
        """What these standing closures of its recording close of the job."""
        own = tuple(closures)
        labels = {
            each.speaker
            for each in own
            if each.speaker is not None
            and each.job_id == job.id
            and each.transcript_sha256 == job.transcript_sha256
        }
        names = {each.speaker_name.casefold() for each in own if each.speaker_name}
        labels |= {label for label, name in job.speaker_names.items() if name.casefold() in names}
        return cls(job.id, own, frozenset(labels))

    def __bool__(self) -> bool:
        return bool(self.closures)

    @property
    def is_whole(self) -> bool:
        """Whether the whole recording is closed."""
        return any(each.kind == "whole" for each in self.closures)

    @property
    def spans(self) -> list[tuple[float, float]]:
        """The closed times, in order and apart."""
        if self.is_whole:
            return [(0.0, _FOREVER)]
        return [(a, b) for a, b in _merged((a, b) for each in self.closures for a, b in each.spans)]

    @property
    def until(self) -> datetime | None:
        """When the last of it opens; None if never."""
        dates = [each.until for each in self.closures]
        return None if None in dates else max((each for each in dates if each is not None), default=None)

    @property
    def sentence(self) -> str:
        """Why something is not shown."""
        until = self.until
        date = "" if until is None else f" until {until:%Y-%m-%d}"
        return f"{'The recording' if self.is_whole else 'Part of the recording'} is closed{date}."

    def covers(self, start: float, end: float, speaker: str | None = None) -> bool:
        """Whether anything of this stretch, or its speaker, is closed."""
        return bool(self.closures) and (speaker in self.labels or _Spans(self.spans).meet(start, end))

    def covers_words(self, record: Recognised, edit: Edit) -> bool:
        """Whether an edit of the recognised transcript touches closed words, or says a closed speaker."""
        if not self.closures:
            return False
        closed = self.find_closed(
            (word.start, word.end, word.speaker)
            for word in record.words[edit.first_word : edit.last_word + 1]
        )
        return edit.speaker in self.labels or any(closed)

    def find_closed(self, stretches: Iterable[tuple[float, float, str | None]]) -> Iterator[bool]:
        """Whether each of these stretches, with who speaks, is closed."""
        labels, closed = self.labels, _Spans(self.spans)
        first, last = closed.first, closed.last
        for start, end, speaker in stretches:
            # Most words of a long recording are far from all that is closed.
            near = start < last and (first < end or first <= start)
            yield speaker in labels or (near and closed.meet(start, end))

    def redact(self, transcript: Transcript) -> Transcript:
        """The transcript as readers see it: a placeholder for each run of closed words, and nothing else of
        what was recognised there."""
        if not self.closures:
            return transcript
        words, homes = self.open_words(transcript.words)
        rebuilt = self.redact_around(rebuild_words(transcript, words, homes))
        return rebuilt.model_copy(update={"segments": name_speakers(rebuilt, words)})

    def redact_around(self, transcript: Transcript) -> Transcript:
        """The transcript without what is closed besides its words and segments, which are those that readers
        see."""
        spans = self.spans
        turns = tuple(self._open_turns(transcript.turns, spans))
        closed = _Spans(spans)

        def is_open(each: _Timed) -> bool:
            return not closed.meet(each.start, each.end)

        return transcript.model_copy(
            update={
                "speakers": tuple(_still_speaking(transcript.speakers, turns)),
                "turns": turns,
                "nbest": tuple(filter(is_open, transcript.nbest)),
                "lattice": tuple(filter(is_open, transcript.lattice)),
                "dropped": tuple(filter(is_open, transcript.dropped)),
                "speech": tuple(filter(is_open, transcript.speech)),
                "languages": tuple(filter(is_open, transcript.languages)),
                "language": None if self.is_whole else transcript.language,
                "speech_without_words": tuple(filter(is_open, transcript.speech_without_words)),
                "alignment": None,
                "warnings": (),
                "options": {name: value for name, value in transcript.options.items() if name != "prompt"},
                "corrections": (),
                "closed": self.marks,
            }
        )

    def mark(self, transcript: Transcript) -> Transcript:
        """The whole transcript, with what is closed of it to other readers."""
        return transcript.model_copy(update={"closed": self.marks}) if self.closures else transcript

    @property
    def marks(self) -> tuple[ClosedSpan, ...]:
        """The closed times with their dates."""
        found = []
        for each in self.closures:
            until = each.until.isoformat(timespec="seconds") if each.until is not None else None
            spans: Sequence[Sequence[float | None]] = each.spans if each.kind != "whole" else [[0.0, None]]
            found += [ClosedSpan(start=a or 0.0, end=b, until=until) for a, b in spans]
        return tuple(sorted(found, key=lambda span: span.start))

    def open_words(self, words: Sequence[Word]) -> tuple[list[Word], list[int]]:
        """The words, a placeholder for each closed run of a channel, and where each stood."""
        shown: list[Word] = []
        homes: list[int] = []
        before: Word | None = None
        closed = self.find_closed((word.start, word.end, word.speaker) for word in words)
        for at, (word, is_closed) in enumerate(zip(words, closed, strict=True)):
            if not is_closed:
                before = None
                shown.append(word)
                homes.append(at)
            elif before is not None and before.channel == word.channel:
                before = before.model_copy(update={"end": max(before.end, word.end)})
                shown[-1] = before
            else:
                before = Word(
                    text=PLACEHOLDER, start=word.start, end=word.end, confidence=1.0, channel=word.channel
                )
                shown.append(before)
                homes.append(at)
        return shown, homes

    def _open_turns(self, turns: Iterable[Turn], spans: Sequence[tuple[float, float]]) -> Iterator[Turn]:
        for turn in turns:
            if turn.speaker not in self.labels:
                for start, end in _without(turn.start, turn.end, spans):
                    yield turn.model_copy(update={"start": start, "end": end})


def _still_speaking(speakers: Iterable[Speaker], turns: Sequence[Turn]) -> Iterator[Speaker]:
    """The speakers who are still heard, with the open part of what they say."""
    for each in speakers:
        seconds = sum(turn.end - turn.start for turn in turns if turn.speaker == each.label)
        if each.words or seconds:
            yield each.model_copy(update={"talk_seconds": round(seconds, 3)})


def name_speakers(around: Transcript, words: Sequence[Word]) -> tuple[Segment, ...]:
    """The transcript's segments with the speaker of their first open word; words: all that they count."""
    kept = {each.label for each in around.speakers}

    def speaker(segment: Segment) -> str | None:
        own = words[segment.first_word : segment.last_word + 1]
        return next((word.speaker for word in own if word.speaker in kept), None)

    return tuple(each.model_copy(update={"speaker": speaker(each)}) for each in around.segments)


class _Spans:
    """Stretches of time, for many questions."""

    def __init__(self, spans: Iterable[tuple[float, float]]) -> None:
        ordered = sorted(spans)
        self._starts = [start for start, _ in ordered]
        self._ends = list(accumulate((end for _, end in ordered), max))
        self.first = self._starts[0] if ordered else _FOREVER
        self.last = self._ends[-1] if ordered else -_FOREVER

    def meet(self, start: float, end: float) -> bool:
        """Whether a stretch, or a moment, has something in common with one of them."""
        begun = max(bisect_left(self._starts, end), bisect_right(self._starts, start))
        return begun > 0 and start < self._ends[begun - 1]


def _merged(spans: Iterable[tuple[float, float]]) -> list[list[float]]:
    merged: list[list[float]] = []
    for start, end in sorted(spans):
        if merged and start <= merged[-1][1]:
            merged[-1][1] = max(merged[-1][1], end)
        else:
            merged.append([round(start, 3), round(end, 3)])
    return merged


def _without(start: float, end: float, spans: Sequence[tuple[float, float]]) -> Iterator[tuple[float, float]]:
    """What is left of a stretch outside the spans, which are in order."""
    for a, b in spans:
        if b <= start or a >= end:
            continue
        if a > start:
            yield start, a
        start = max(start, b)
    if start < end:
        yield start, end
