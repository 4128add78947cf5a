"""The results of files that were transcribed without a queue, and their output formats.

The contract of `spool-worker transcribe --format json`, one object a file, in the order given:

    {"file", "duration", "frames", "text", "words": [{"text", "start", "end", "confidence"}],
     "nbest": [{"tokens", "score", "times", "durations", "text"}]}
    {"file", "error": {"code", "message"}}        for a file that failed

`duration`, `start` and `end` are seconds, `times` and `durations` encoder frames from the file's start.
Confidences have three decimals, which hides the batch they were computed in; scores have five, for comparison
with other tools. Without chunks all files are decoded as one batch, and `nbest` is the search's list. In
chunks it has one entry, joined from the best hypothesis of each chunk: its tokens within the core, and the
sum of the scores.

If asked for, a word has "alternatives": [{"text", "confidence"}] (unless there are none) and a file has
"lattice": each chunk's, as in `spool.domain.transcript`, or the text of a Kaldi archive. If more than one
hypothesis was asked for, a file of several chunks has "chunks": [{"start", "end", "hypotheses": [{"text",
"score"}]}].

In chunks the speech detector adds "speech": [{"start", "end", "label"}], "coverage": {"speech": share of
detected speech with words}, "dropped": invented segments with their words, and "doubtful": true on words
where it heard no speech. A model that detects languages adds "language" and "languages": [{"start", "end",
"language", "probability", "read_as"}], one per chunk.

With `--verbatim` a word may have "disfluency": "filler", "repetition" or "false_start", and "omitted": true
if the text leaves it out.

A truncated file has "complete": false, "expected_seconds" and "missing_seconds" (null if unknown).

With `--diarize` a word has "speaker" (and "overlap": true where another speaks over it), and a file has
"speakers": [{"label", "name", "talk_seconds", "words"}], "turns": [{"start", "end", "speaker"}] and the
"diarization" model. Words have no speaker if no speech was detected in the whole recording.

With `--witness` a file has "segments": [{"start", "end", "text", "flagged", "evidence", "words": [{"text",
"start", "end", "evidence"}]}], as `spool-worker witness` prints them, "speech_without_words": [{"start",
"end"}] and the "witness" model with "words_without_evidence" (and "abstained", if it judged nothing).

Other tools depend on this format. Plain Python.
"""

import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from spool.domain.recognition import ChunkSpan, Hypothesis
from spool.domain.transcript import Transcript
from spool.errors import SpoolError
from spool.formats import render

NBEST_DIGITS = 5


@dataclass(frozen=True)
class FileResult:
    """One file: an error, or a transcript with its encoder frames, its hypotheses (each with its text) and
    its chunks, silent ones included."""

    file: str
    error: SpoolError | None = None
    transcript: Transcript | None = None
    frames: int = 0
    nbest: tuple[tuple[Hypothesis, str], ...] = ()
    chunks: tuple[ChunkSpan, ...] = ()


def render_results(results: Sequence[FileResult], form: str, lattice: str | None = None) -> str:
    """The results as one text. json: the array of the contract, one object per line, with lattices in the
    form of `lattice` ("json", "kaldi"). kaldi: one archive of all files.

    In the other formats, with several files, each rendered transcript follows a line `==> file <==`; a failed
    file has a line `error: ...` instead. Raises InvalidRequest for an unknown format.
    """
    if form == "json":
        documents = (_as_json(result, lattice) for result in results)
        rows = (json.dumps(row, ensure_ascii=False, allow_nan=False) for row in documents)
        return "[\n" + ",\n".join(rows) + "\n]"
    if form == "kaldi":  # an entry ends in an empty line, and so does the archive
        archive = "".join(render(result.transcript, form) for result in results if result.transcript)
        return archive.removesuffix("\n")
    parts = []
    for result in results:
        title = f"==> {result.file} <==\n" if len(results) > 1 else ""
        body = f"error: {result.error.message}\n" if result.error else ""
        parts.append(title + body + (render(result.transcript, form) if result.transcript else ""))
    return "\n".join(parts).rstrip("\n")


def _without_channel(row: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in row.items() if name != "channel"}


def _present_witness(transcript: Transcript) -> dict[str, Any]:
    """What the witness found, each segment with its words."""
    assert transcript.witness is not None
    segments = []
    for each in transcript.segments:
        own = transcript.words[each.first_word : each.last_word + 1]
        words = [
            {"text": word.text, "start": word.start, "end": word.end, "evidence": word.evidence}
            for word in own
        ]
        times = {"start": each.start, "end": each.end, "text": each.text}
        segments.append({**times, "flagged": each.flagged, "evidence": each.evidence, "words": words})
    uncovered = [each.model_dump(mode="json") for each in transcript.speech_without_words]
    facts = transcript.witness.model_dump(mode="json")
    return {"segments": segments, "speech_without_words": uncovered, "witness": facts}


def _as_json(result: FileResult, lattice: str | None) -> dict[str, Any]:
    if result.error is not None or result.transcript is None:
        error = result.error or SpoolError()
        return {"file": result.file, "error": {"code": error.code, "message": error.message}}
    document = {
        "file": result.file,
        "duration": result.transcript.audio.duration,
        "frames": result.frames,
        "text": result.transcript.text,
        "words": [word.model_dump(mode="json", exclude={"channel"}) for word in result.transcript.words],
        "nbest": [
            {
                "tokens": list(hypothesis.tokens),
                "score": round(hypothesis.score, NBEST_DIGITS),
                "times": list(hypothesis.times),
                "durations": list(hypothesis.durations),
                "text": text,
            }
            for hypothesis, text in result.nbest
        ],
    }
    if result.transcript.audio.complete is False:
        document["complete"] = False
        document["expected_seconds"] = result.transcript.audio.expected_seconds
        document["missing_seconds"] = result.transcript.audio.missing_seconds
    if result.transcript.speech:
        record = result.transcript.model_dump(mode="json", include={"speech"})
        document["speech"] = [_without_channel(span) for span in record["speech"]]
        document["coverage"] = {"speech": result.transcript.coverage.speech}
    if result.transcript.speech or result.transcript.dropped:
        dropped = result.transcript.model_dump(mode="json", include={"dropped"})
        document["dropped"] = dropped.get("dropped", [])
    if result.transcript.language is not None:
        spans = result.transcript.model_dump(mode="json", include={"languages"})["languages"]
        document["language"] = result.transcript.language
        document["languages"] = [_without_channel(span) for span in spans]
    if result.transcript.diarization is not None:
        document["speakers"] = [each.model_dump(mode="json") for each in result.transcript.speakers]
        document["turns"] = [
            each.model_dump(mode="json", exclude={"channel"}) for each in result.transcript.turns
        ]
        document["diarization"] = result.transcript.diarization.model_dump(mode="json")
    if result.transcript.witness is not None:
        document |= _present_witness(result.transcript)
    if len(result.transcript.nbest) > 1:
        document["chunks"] = [
            each.model_dump(mode="json", exclude={"channel"}) for each in result.transcript.nbest
        ]
    if lattice == "json":
        document["lattice"] = [each.model_dump(mode="json") for each in result.transcript.lattice]
    elif lattice == "kaldi":
        document["lattice"] = render(result.transcript, "kaldi")
    return document
