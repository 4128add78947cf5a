"""Decodes a sample of a job's chunks again, and compares what comes with the job's receipt.

The cut into chunks is made anew from the whole recording and compared too. Neither database nor server is
asked. Imports MLX, so import it only in the process that decodes, and only when needed.
"""

import json
import math
import random
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path

from pydantic import BaseModel

from spool.domain.options import JobOptions
from spool.domain.receipts import ChunkReceipt, Statement, receipt_of
from spool.domain.recognition import ChunkSpan, Recognition
from spool.domain.search.phrases import phrase_list
from spool.errors import InvalidRequest, UnknownModel
from spool.settings import Settings, load_settings
from worker.audio import SAMPLE_RATE, AudioStream, open_audio
from worker.jobs.code import running_code
from worker.jobs.request import resolve_files
from worker.local.transcribe import LocalDecoder, LocalEngine
from worker.models.load import load_model, load_reader
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
) -> Verification:
    """Decode a share of the chunks, such as 1%, or a number of them. model: instead of the place that the
    settings have for the job's model. core: the stretch, if the job replaced one. Raises InvalidRequest for
    what cannot be compared, and what `open_audio` and `load_model` raise."""
    _refuse_incomparable(statement, options, phrases, core)
    settings = load_settings()
    place = model or _place_of(options.model, settings)
    request = resolve_files(options, settings, statement.job, phrases)
    reader = None if options.rescore is None else load_reader(request.search.reader or "")
    engine = LocalEngine(load_model(place), request, _AT_ONCE, reader)
    if engine.info.sha256 != statement.model.sha256:
        raise InvalidRequest(
            f"{place}: these weights are not those of the job: SHA-256 is {engine.info.sha256}, and "
            f"{statement.model.sha256} in the receipt."
        )
    chosen = choose_sample(statement.chunks, sample, seed)
    everything = {(each.channel, each.number) for each in statement.chunks}
    decoded = everything if request.carries else chosen
    checker = _ChunkChecker(audio, engine, decoded, core, request=request, info=engine.info)
    with open_audio(audio, channels=options.channels) as stream:
        checker.send(checker.plan(stream, detector=options.speech_detector))
        checker.finish()
    notes = _notes(statement, engine.info.numerics)
    if decoded != chosen:
        notes.append("Each chunk continues from the one before it, so all of them were decoded.")
    return Verification(
        job=statement.job,
        chunks=len(statement.chunks),
        decoded=len(decoded),
        seed=seed,
        numerics=engine.info.numerics,
        notes=notes,
        differences=checker.compare(statement.chunks),
    )


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
    if any(each.what != _WORDS for each in found.differences):
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
    if options.align is not None or options.live is not None:
        what = "an existing transcript was aligned" if options.align else "it was a live session"
        raise InvalidRequest(f"{statement.job} cannot be decoded again: {what}.")
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


@dataclass(slots=True)
class _ChunkChecker(LocalDecoder):
    """Plans all chunks of a recording, and decodes the chosen ones."""

    chosen: set[Place]
    core: StretchCore | None
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

    def compare(self, expected: Sequence[ChunkReceipt]) -> list[Difference]:
        """What differs from these chunks, in order."""
        words = {(each.span.channel, each.span.index): receipt_of(each).sha256 for each in self.decoded}
        known = {(each.channel, each.number): each for each in expected}
        found = []
        for place in sorted(known.keys() | self.spans.keys()):
            one = known.get(place)
            span = self.spans.get(place) or (one and one.span)
            assert span is not None
            if one is None:
                what = "not in the receipt"
            elif place not in self.spans:
                what = "in the receipt, but the recording has no such chunk"
            elif one.span != span:
                what = "begins, ends or has speech where the receipt says otherwise"
            elif words.get(place, one.sha256) != one.sha256:
                what = _WORDS
            else:
                continue
            start, end = span.core_start / SAMPLE_RATE, span.core_end / SAMPLE_RATE
            found.append(Difference(channel=place[0], number=place[1], start=start, end=end, what=what))
        return found


def read_statement(data: bytes) -> Statement:
    """The statement of a receipt's file, whose signature is not checked here. Raises InvalidRequest."""
    try:
        return Statement.model_validate(json.loads(data)["statement"])
    except (ValueError, KeyError, TypeError):
        raise InvalidRequest("The file is not a receipt.") from None
