"""Findings as JSON, as a text for people, and in a transcript's record."""

import json
from collections.abc import Iterator
from typing import Any

from spool.domain.transcript import ModelFacts, Transcript, UncoveredSpeech, WitnessFacts
from worker.witness.judge import CheckedSegment, CheckedWord, Findings
from worker.witness.transcripts import GivenSegment, GivenTranscript, GivenWord


def findings_json(findings: Findings, model: ModelFacts) -> str:
    """The contract of `spool-worker witness --format json`: the segments in the order in which they were
    given, with `flagged`, `evidence` and their words' evidence (null where it was not judged), and the speech
    without words."""
    row: dict[str, Any] = {
        "model": model.model_dump(mode="json"),
        "segments": [_segment(each) for each in findings.segments],
        "speech_without_words": [
            {"start": each.start, "end": each.end} | ({"channel": each.channel} if each.channel else {})
            for each in findings.speech_without_words
        ],
        "words_without_evidence": findings.words_without_evidence,
    }
    if findings.abstained:
        row["abstained"] = findings.abstained
    return json.dumps(row, ensure_ascii=False, allow_nan=False, indent=1)


def _segment(each: CheckedSegment) -> dict[str, Any]:
    given = each.given
    row: dict[str, Any] = {"start": given.start, "end": given.end, "text": given.text}
    if given.channel:
        row["channel"] = given.channel
    row |= {"flagged": each.flagged, "evidence": each.evidence}
    if each.reason:
        row["reason"] = each.reason
    return row | {"words": [_word(word) for word in each.words]}


def _word(word: CheckedWord) -> dict[str, Any]:
    return {"text": word.text, "start": word.start, "end": word.end, "evidence": word.evidence}


def findings_text(findings: Findings) -> str:
    """A line for each segment without evidence and each stretch of speech without words, in order of time."""
    if findings.abstained:
        return f"Nothing was judged: {findings.abstained}.\n"
    lines = [
        (
            each.given.start,
            f"{each.given.start:9.2f} {each.given.end:9.2f}  nobody said this: {each.given.text}",
        )
        for each in findings.segments
        if each.flagged
    ]
    lines += [
        (each.start, f"{each.start:9.2f} {each.end:9.2f}  speech without words")
        for each in findings.speech_without_words
    ]
    lines += [
        (
            each.given.start,
            f"{each.given.start:9.2f} {each.given.end:9.2f}  not judged, {each.reason}: {each.given.text}",
        )
        for each in findings.segments
        if each.reason
    ]
    return "".join(f"{line}\n" for _, line in sorted(lines))


def transcript_to_check(transcript: Transcript) -> GivenTranscript:
    """A record's segments, to be judged."""
    segments = []
    for each in transcript.segments:
        words = transcript.words[each.first_word : each.last_word + 1]
        given = tuple(GivenWord(word.text, word.start, word.end) for word in words)
        segments.append(GivenSegment(each.start, each.end, each.text, given, each.channel))
    return GivenTranscript(tuple(segments), transcript.language)


def add_findings(transcript: Transcript, findings: Findings, model: ModelFacts) -> Transcript:
    """The record with what was found about `transcript_to_check`."""
    words = list(transcript.words)
    segments = []
    for segment, checked in zip(transcript.segments, findings.segments, strict=True):
        verdict = {"evidence": checked.evidence, "flagged": checked.flagged}
        segments.append(segment.model_copy(update=verdict))
        for at, word in enumerate(checked.words, segment.first_word):
            words[at] = words[at].model_copy(update={"evidence": word.evidence})
    uncovered = tuple(
        UncoveredSpeech(start=each.start, end=each.end, channel=each.channel)
        for each in sorted(findings.speech_without_words, key=lambda each: (each.start, each.channel))
    )
    facts = WitnessFacts(
        name=model.name,
        sha256=model.sha256,
        words_without_evidence=findings.words_without_evidence,
        abstained=findings.abstained,
    )
    found = {"words": tuple(words), "segments": tuple(segments), "witness": facts}
    changed = transcript.model_copy(update={**found, "speech_without_words": uncovered})
    return changed.model_copy(update={"warnings": (*transcript.warnings, *_warn(changed, findings))})


def _warn(transcript: Transcript, findings: Findings) -> Iterator[str]:
    """What whoever asked should know without opening the transcript."""
    if findings.abstained:
        yield f"the witness judged nothing: {findings.abstained}"
    flagged = [each for each in transcript.segments if each.flagged]
    if flagged:
        words = sum(each.last_word - each.first_word + 1 for each in flagged)
        yield (
            f"the sound does not support {len(flagged)} of {len(transcript.segments)} segments "
            f"({words} words); the first is at {flagged[0].start:.1f} s"
        )
    if transcript.uncovered_seconds:
        yield f"{transcript.uncovered_seconds:.1f} s of clear speech have no words"
