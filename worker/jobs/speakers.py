"""Puts speakers into a transcript: labels on words, segments that end with a speaker, turns, talk times.

Pure functions of a transcript and of what a diarization model heard; jobs and `transcribe` use the same.
"""

import itertools
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace

from spool.domain.archive.diarization import Diarization
from spool.domain.jobs import JobSpeaker
from spool.domain.transcript import DiarizationFacts, Segment, Speaker, Transcript, Turn, Word
from worker.diarization.base import SpeakerActivity, SpeakerSegment
from worker.diarization.words import label_words
from worker.segmentation.segments import segments_of

CHANNELS = DiarizationFacts(name="channels", sha256="")
"""What tells speakers apart where each channel is one."""
NO_ACTIVITY: Mapping[int, SpeakerActivity | None] = {}
_PAUSE = 0.8
"""Seconds of silence that end a turn where a channel is one speaker."""


def has_speaker_per_channel(options: Diarization, channels: int) -> bool:
    """Whether each channel kept apart is one speaker, so that there is nothing to listen for."""
    return channels > 1 and not options.within_channels


def with_speakers(
    transcript: Transcript,
    segments: Mapping[int, Sequence[SpeakerSegment]],
    model: DiarizationFacts,
    activity: Mapping[int, SpeakerActivity | None] = NO_ACTIVITY,
) -> Transcript:
    """The transcript with the speakers of `segments` and, where a model tells, `activity` (by channel).
    Speakers of two channels are never one."""
    texts: list[Word] = []
    turns: list[tuple[int, SpeakerSegment]] = []
    before = 0
    for channel in sorted({word.channel for word in transcript.words} | set(segments)):
        words = [word for word in transcript.words if word.channel == channel]
        spoken, numbered = label_words(words, segments.get(channel, ()), activity.get(channel))
        for word, speaker in zip(words, spoken, strict=True):
            label = None if speaker is None else _label(before + speaker.speaker)
            overlap = speaker is not None and speaker.overlapped
            texts.append(word.model_copy(update={"speaker": label, "overlap": overlap}))
        turns += [(channel, replace(each, speaker=before + each.speaker)) for each in numbered]
        before = max((each.speaker for _, each in turns), default=-1) + 1
    return _assemble(transcript, texts, _turns(turns), model, channels=False)


def with_channels_as_speakers(transcript: Transcript) -> Transcript:
    """The transcript with one speaker for each channel on which there are words."""
    texts: list[Word] = []
    turns: list[tuple[int, SpeakerSegment]] = []
    for channel, group in itertools.groupby(transcript.words, key=lambda word: word.channel):
        words = list(group)
        others = sorted((w.start, w.end) for w in transcript.words if w.channel != channel)
        texts += [
            word.model_copy(update={"speaker": _label(channel), "overlap": overlap})
            for word, overlap in zip(words, _find_overlap(words, others), strict=True)
        ]
        turns += [(channel, SpeakerSegment(start, end, channel)) for start, end in _join_words(words)]
    return _assemble(transcript, texts, _turns(turns), CHANNELS, channels=True)


def _assemble(
    transcript: Transcript, words: list[Word], turns: list[Turn], model: DiarizationFacts, *, channels: bool
) -> Transcript:
    talk = Counter[str]()
    for turn in turns:
        talk[turn.speaker] += turn.end - turn.start  # type: ignore[assignment]
    of_words = Counter(word.speaker for word in words)
    labels = sorted(set(talk) | {label for label in of_words if label}, key=_number)
    homes = {turn.speaker: turn.channel for turn in turns}
    speakers = tuple(
        Speaker(
            label=label,
            talk_seconds=round(float(talk[label]), 3),
            words=of_words[label],
            channel=homes.get(label) if channels else None,
        )
        for label in labels
    )
    return transcript.model_copy(
        update={
            "words": tuple(words),
            "segments": tuple(_carry_evidence(transcript.segments, segments_of(words))),
            "speakers": speakers,
            "turns": tuple(turns),
            "diarization": model,
        }
    )


def _carry_evidence(before: Sequence[Segment], after: Iterable[Segment]) -> Iterator[Segment]:
    """Segments of the same words, cut otherwise, with the witness's verdict on the segment that most of their
    words were in."""
    old = {
        at: place for place, each in enumerate(before) for at in range(each.first_word, each.last_word + 1)
    }
    for segment in after:
        shared = Counter(old[at] for at in range(segment.first_word, segment.last_word + 1) if at in old)
        if not shared:
            yield segment
            continue
        most = before[shared.most_common(1)[0][0]]
        yield segment.model_copy(update={"evidence": most.evidence, "flagged": most.flagged})


def _turns(segments: Iterable[tuple[int, SpeakerSegment]]) -> list[Turn]:
    turns = [
        Turn(
            start=round(segment.start, 3),
            end=round(segment.end, 3),
            speaker=_label(segment.speaker),
            channel=channel,
        )
        for channel, segment in segments
    ]
    return sorted(turns, key=lambda turn: (turn.start, turn.channel, turn.speaker))


def _join_words(words: Sequence[Word]) -> list[tuple[float, float]]:
    """The stretches of one channel's words, joined over short pauses."""
    joined: list[tuple[float, float]] = []
    for word in words:
        if joined and word.start - joined[-1][1] <= _PAUSE:
            joined[-1] = (joined[-1][0], max(joined[-1][1], word.end))
        else:
            joined.append((word.start, word.end))
    return joined


def _find_overlap(words: Sequence[Word], others: Sequence[tuple[float, float]]) -> list[bool]:
    """Whether words of other channels (in order of their starts) cover more than half of each word."""
    marks, first = [], 0
    longest = max((end - start for start, end in others), default=0.0)
    for word in words:
        while first < len(others) and others[first][0] + longest < word.start:
            first += 1
        covered = 0.0
        for start, end in others[first:]:
            if start >= word.end:
                break
            covered = max(covered, min(end, word.end) - max(start, word.start))
        marks.append(covered > (word.end - word.start) / 2)
    return marks


def _label(number: int) -> str:
    return f"speaker_{number}"


def _number(label: str) -> int:
    return int(label.partition("_")[2])


def carry_names(names: Mapping[str, str], before: Transcript, after: Transcript) -> dict[str, str]:
    """The names that a person gave to the speakers of `before`, by the labels of `after`, which has the same
    words: each name goes to the speaker who says most of its words, and no speaker gets two."""
    shared = Counter(
        (old.speaker, new.speaker)
        for old, new in zip(before.words, after.words, strict=False)
        if old.speaker in names and new.speaker
    )
    carried: dict[str, str] = {}
    given: set[str] = set()
    for (old, new), _ in sorted(shared.items(), key=lambda item: (-item[1], item[0])):
        if old is not None and new is not None and old not in given and new not in carried:
            carried[new] = names[old]
            given.add(old)
    return carried


def job_speakers(transcript: Transcript) -> list[JobSpeaker]:
    """The speakers as a job's row keeps them, with the names that the transcript gives."""
    return [
        JobSpeaker(label=each.label, name=each.name, talk_seconds=each.talk_seconds, words=each.words)
        for each in transcript.speakers
    ]
