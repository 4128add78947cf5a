"""Decodes a sample of a job's chunks again, and compares what comes with the job's receipt.

The cut into chunks is made anew from the whole recording and compared too. A live session is heard again as a
whole (`worker.local.verify_live`). Neither database nor server is asked. Imports MLX, so import it only in
the process that decodes, and only when needed.
"""

import json
import math
import random
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path

from pydantic import BaseModel

from spool.domain.archive.alignment import KeptAlign, Typescript
from spool.domain.archive.typescripts import SpokenWord
from spool.domain.live.options import Listening
from spool.domain.options import JobOptions
from spool.domain.receipts import ChunkReceipt, Statement, receipt_of
from spool.domain.recognition import ChunkSpan, DecodedChunk, Recognition
from spool.domain.search.phrases import phrase_list
from spool.domain.transcript import Transcript
from spool.errors import InvalidRequest, UnknownModel
from spool.settings import Settings, load_settings
from worker.audio import SAMPLE_RATE, AudioStream, open_audio
from worker.jobs.align.assembly import align_text, chunk_request, emissions_in_core, spell_request
from worker.jobs.code import running_code
from worker.jobs.live.decoding import endpoint_rules
from worker.jobs.request import resolve_files
from worker.live.session import LiveOptions
from worker.local.transcribe import LocalDecoder, LocalEngine
from worker.local.verify_live import SessionRecording, hear_session
from worker.models.base import SpeechModel
from worker.models.load import load_model, load_reader
from worker.models.requests import DecodeRequest
from worker.segmentation.chunker import Chunk, ChunkOptions
from worker.segmentation.stretch import StretchCore

_AT_ONCE = 12

Place = tuple[int, int]
"""Channel and number of a chunk."""


class Difference(BaseModel):
    """A chunk that did not come out as the receipt says; seconds of the recording."""

    channel: int
    number: int
    start: float
    end: float
    what: str


class Verification(BaseModel):
    """What was compared, and what differs. `notes`: what is not as it was when the job ran."""

    job: str
    chunks: int
    decoded: int
    seed: int
    numerics: str
    notes: list[str]
    differences: list[Difference]


def verify(
    statement: Statement,
    options: JobOptions,
    audio: Path,
    sample: str,
    seed: int,
    phrases: tuple[str, ...] = (),
    model: str | None = None,
    core: StretchCore | None = None,
    aligned: Transcript | None = None,
) -> Verification:
    """Decode a share of the chunks, such as 1%, or a number of them. model: instead of the place that the
    settings have for the job's model. core: the stretch, if the job replaced one. aligned: the transcript, if
    its words were given. Raises InvalidRequest for what cannot be compared, and what `open_audio` and
    `load_model` raise."""
    _refuse_incomparable(statement, options, phrases, core)
    settings = load_settings()
    place = model or _place_of(options.model, settings)
    text = None if options.align is None else _text_of(options.align, aligned)
    request = spell_request(text) if text else resolve_files(options, settings, statement.job, phrases)
    reader = None if options.rescore is None else load_reader(request.search.reader or "")
    loaded = load_model(place)
    engine = LocalEngine(loaded, request, _AT_ONCE, reader)
    if engine.info.sha256 != statement.model.sha256:
        raise InvalidRequest(
            f"{place}: these weights are not those of the job: SHA-256 is {engine.info.sha256}, and "
            f"{statement.model.sha256} in the receipt."
        )
    if engine.info.spelling is not None:
        request = chunk_request(engine.info.spelling)
    chosen = choose_sample(statement.chunks, sample, seed)
    everything = {(each.channel, each.number) for each in statement.chunks}
    decoded = everything if request.carries or options.live is not None else chosen
    notes = _notes(statement, engine.info.numerics)
    if decoded != chosen:
        notes.append("Each chunk continues from the one before it, so all of them were decoded.")
    if aligned is not None and decoded != everything:
        notes.append("The words' places follow from all chunks together: --sample 100% compares them too.")
    if options.live is not None:
        found = _compare_session(statement.chunks, options, options.live, audio, loaded, request)
    else:
        checker = _ChunkChecker(audio, engine, decoded, core, text, request=request, info=engine.info)
        found = checker.compare(options, statement.chunks, aligned if decoded == everything else None)
    return Verification(
        job=statement.job,
        chunks=len(statement.chunks),
        decoded=len(decoded),
        seed=seed,
        numerics=engine.info.numerics,
        notes=notes,
        differences=found,
    )


def _text_of(kept: KeptAlign, aligned: Transcript | None) -> Typescript:
    """The text that a job aligned, from its transcript. Raises InvalidRequest."""
    if aligned is None:
        raise InvalidRequest("The job aligned a text, which is in its transcript.")
    names = {each.label: each.name for each in aligned.speakers}
    words = ((each.text, names.get(each.speaker or "")) for each in aligned.words)
    text = Typescript(tuple(SpokenWord(*each) for each in words))
    if text.sha256 != kept.sha256:
        raise InvalidRequest("The words of the transcript are not the text that the job aligned.")
    return text


def _compare_session(
    expected: Sequence[ChunkReceipt],
    options: JobOptions,
    listening: Listening,
    audio: Path,
    model: SpeechModel,
    request: DecodeRequest,
) -> list[Difference]:
    asked = LiveOptions(request.search, endpoint_rules(listening), detects=options.speech_detector)
    with SessionRecording(audio, listening) as recording:
        heard = hear_session(recording, model, asked, expected)
    return compare(expected, [each.span for each in heard], heard)


def choose_sample(chunks: Sequence[ChunkReceipt], sample: str, seed: int) -> set[Place]:
    """The chunks that `sample` asks for: at least one, the same ones for the same seed."""
    number, percent, rest = sample.partition("%")
    try:
        asked = float(number) / 100 * len(chunks) if percent else float(int(number))
        valid = not rest and 0 < asked <= max(len(chunks), 1) * (1 if percent else math.inf)
    except ValueError:
        valid = False
    if not valid:
        raise InvalidRequest(f"--sample: {sample} is neither a share such as 1% nor a number of chunks.")
    places = [(each.channel, each.number) for each in chunks]
    chosen = random.Random(seed)  # noqa: S311 - a sample that can be drawn again
    return set(chosen.sample(places, min(len(places), math.ceil(asked))))


def report(verification: Verification) -> str:
    """For people."""
    found = verification
    lines = [*found.notes, *(_line(each) for each in found.differences)]
    places = f"{found.chunks} chunks begin and end where the receipt says"
    if any(each.what not in (_WORDS, _MOVED) for each in found.differences):
        places = f"{found.chunks} chunks were looked for"
    bad = sum(each.what == _WORDS for each in found.differences)
    same = f"{found.decoded - bad} of {found.decoded} decoded again are equal"
    same += f" ({found.numerics}, seed {found.seed})"
    return "\n".join([*lines, f"{places}; {same}."])


def _line(each: Difference) -> str:
    channel = f" of channel {each.channel}" if each.channel else ""
    return f"chunk {each.number}{channel}, {each.start:.1f} to {each.end:.1f} s: {each.what}"


def _refuse_incomparable(
    statement: Statement, options: JobOptions, phrases: tuple[str, ...], core: StretchCore | None
) -> None:
    if statement.words_from is not None and statement.chunks and core is None:
        raise InvalidRequest(f"{statement.job} replaced a stretch, and this transcript does not say which.")
    if statement.words_from is not None and not statement.chunks:
        raise InvalidRequest(
            f"Nothing was decoded for this receipt: the words are those of job {statement.words_from.job}, "
            f"transcript {statement.words_from.transcript_sha256}. Verify that receipt."
        )
    asked = None if options.boost is None else options.boost.sha256
    if asked != (phrase_list(phrases).sha256 if phrases else None):
        raise InvalidRequest("The phrases are not those of the job.")


def _place_of(name: str, settings: Settings) -> str:
    if name not in settings.models:
        raise UnknownModel(f"There is no model {name!r} here; name its folder or file with --model.")
    return settings.models[name]


def _notes(statement: Statement, numerics: str) -> list[str]:
    own, notes = running_code(), []
    if numerics != statement.numerics:
        notes.append(
            f"The job was decoded in {statement.numerics}, this is {numerics}: words and scores may differ."
        )
    if own.decoder != statement.code.decoder:
        notes.append(
            f"The job had version {statement.code.decoder} of the decoder, this is {own.decoder}: "
            "words and scores may differ."
        )
    elif own.sha256 != statement.code.sha256:
        notes.append("The code is not the same as that of the job.")
    return notes


_WORDS = "other words, times or scores than in the receipt"
_MOVED = "words of the text are placed elsewhere than in the transcript"


@dataclass(slots=True)
class _ChunkChecker(LocalDecoder):
    """Plans all chunks of a recording, and decodes the chosen ones."""

    chosen: set[Place]
    core: StretchCore | None
    text: Typescript | None
    spans: dict[Place, ChunkSpan] = field(default_factory=dict)

    def plan(self, audio: AudioStream, *, detector: bool) -> Iterable[Chunk]:
        """The chunks of the recording, or of the stretch that the job replaced."""
        whole = super(_ChunkChecker, self).plan(audio, detector=detector)
        if self.core is None:
            return whole
        assert self.info is not None
        lengths = ChunkOptions(**asdict(self.info.chunking))
        return self.core.plan(self.blocks_of(audio), audio.channels, lengths, self.listeners)

    def is_known(self, span: ChunkSpan) -> bool:
        """Whether the chunk is not to be decoded."""
        place = span.channel, span.index
        self.spans[place] = span
        return place not in self.chosen

    def keep(self, answers: Sequence[tuple[ChunkSpan, Recognition]]) -> None:
        """Keep decoded chunks to compare them."""
        for span, answer in answers:
            self.add(self.place_chunk(span, answer))

    def place_chunk(self, span: ChunkSpan, heard: Recognition) -> DecodedChunk:
        """As for a job, with what the head says of the text's tokens if there is a text."""
        chunk = super(_ChunkChecker, self).place_chunk(span, heard)
        if self.text is None:
            return chunk
        assert self.info is not None
        return replace(chunk, emissions=emissions_in_core(span, heard, self.info.frame_seconds))

    def compare(
        self, options: JobOptions, expected: Sequence[ChunkReceipt], aligned: Transcript | None
    ) -> list[Difference]:
        """What differs from these chunks, in order; if none does, which words of `aligned` are elsewhere."""
        with open_audio(self.path, channels=options.channels) as stream:
            self.send(self.plan(stream, detector=options.speech_detector))
            self.finish()
        found = compare(expected, list(self.spans.values()), self.decoded)
        if aligned is None or found:
            return found
        assert self.text is not None
        assert self.info is not None
        heard = self.transcript(stream, None, {"align": self.text.kept.model_dump(mode="json")})
        own = align_text(heard, self.decoded, self.text, self.info).words
        moved = [word.start for word, given in zip(own, aligned.words, strict=True) if word != given]
        spans = sorted(self.spans.values(), key=lambda span: span.core_start)
        return [
            _difference(span, _MOVED)
            for span in spans
            if any(span.core_start <= at * SAMPLE_RATE < span.core_end for at in moved)
        ]


def compare(
    expected: Sequence[ChunkReceipt], spans: Iterable[ChunkSpan], decoded: Iterable[DecodedChunk]
) -> list[Difference]:
    """What differs from these chunks, in order. spans: of all chunks that there are."""
    words = {(each.span.channel, each.span.index): receipt_of(each).sha256 for each in decoded}
    known = {(each.channel, each.number): each for each in expected}
    found = {(each.channel, each.index): each for each in spans}
    differences = []
    for place in sorted(known.keys() | found.keys()):
        one = known.get(place)
        span = found[place] if place in found else known[place].span
        if one is None:
            what = "not in the receipt"
        elif place not in found:
            what = "in the receipt, but the recording has no such chunk"
        elif one.span != span:
            what = "begins, ends or has speech where the receipt says otherwise"
        elif words.get(place, one.sha256) != one.sha256:
            what = _WORDS
        else:
            continue
        differences.append(_difference(span, what))
    return differences


def _difference(span: ChunkSpan, what: str) -> Difference:
    start, end = span.core_start / SAMPLE_RATE, span.core_end / SAMPLE_RATE
    return Difference(channel=span.channel, number=span.index, start=start, end=end, what=what)


def read_statement(data: bytes) -> Statement:
    """The statement of a receipt's file, whose signature is not checked here. Raises InvalidRequest."""
    try:
        return Statement.model_validate(json.loads(data)["statement"])
    except (ValueError, KeyError, TypeError):
        raise InvalidRequest("The file is not a receipt.") from None
