"""Checks a transcript against the sounds of its recording in this process.

Imports MLX, so import it only in the process that listens, and only when needed.
"""

import itertools
from collections.abc import Iterable, Iterator
from dataclasses import replace
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from spool.domain.transcript import ModelFacts
from spool.errors import InvalidRequest, SpoolError
from spool.sounds.dictionary import DEFAULT_WITNESS, lexicon_of
from spool.sounds.lexicon import Lexicon
from spool.sounds.phones import BOUNDARY, COLUMNS, PhoneFrames, PhoneMap
from worker.audio import open_audio
from worker.audio.stream import Channels
from worker.engine.protocol import Failure
from worker.engine.recognizer import ModelRecognizer
from worker.jobs.speech_check import drop_flagged
from worker.local.report import FileResult
from worker.models.base import SpeechModel
from worker.models.load import load_model, model_files
from worker.segmentation.chunker import Chunk
from worker.witness.judge import Findings, check_transcript
from worker.witness.listening import core_table, listen_request, plan_windows
from worker.witness.report import add_findings, transcript_to_check
from worker.witness.transcripts import GivenTranscript

WINDOWS_AT_ONCE = 8


def check_file(listener: "Listener", path: Path, given: GivenTranscript) -> Findings:
    """What the recording's sounds say of a transcript. Raises what `open_audio` raises, and InvalidRequest
    for a transcript of more channels than the recording has."""
    frames = listener.hear_file(path, "separate" if given.channels > 1 else "mix")
    if len(frames) < given.channels:
        raise InvalidRequest(
            f"{path}: the transcript has {given.channels} channels, and the recording {len(frames)}"
        )
    return check_transcript(given, frames, listener.lexicon)


def load_listener(model: str = DEFAULT_WITNESS) -> "Listener":
    """The phoneme model and its dictionary: a name of the catalogue, or a folder. Raises ModelError,
    InvalidRequest."""
    return Listener(load_model(model), lexicon_of(model_files(model).path))


def check_result(listener: "Listener", result: FileResult, *, drop: bool = False) -> FileResult:
    """The result with what the sounds say of its words; drop: without the segments that they do not support.
    A file that cannot be read a second time fails alone."""
    if result.transcript is None:
        return result
    try:
        given = transcript_to_check(result.transcript)
        findings = check_file(listener, Path(result.file), given)
    except SpoolError as error:
        return FileResult(result.file, error=error)
    checked = add_findings(result.transcript, findings, listener.facts)
    return replace(result, transcript=drop_flagged(checked) if drop else checked)


class Listener:
    """A loaded phoneme model that hears whole recordings."""

    def __init__(self, model: SpeechModel, lexicon: Lexicon) -> None:
        """Raises InvalidRequest for a model that hears no phonemes."""
        if "ctc" not in model.heads or BOUNDARY not in model.tokenizer.pieces:
            raise InvalidRequest(f"{model.info.name} hears no phonemes, which a witness needs")
        self._recognizer = ModelRecognizer(model)
        self.facts = ModelFacts(name=model.info.name, sha256=model.info.sha256)
        self.lexicon = lexicon
        self.labels = model.tokenizer.pieces
        self.phones = PhoneMap(self.labels)
        self._request = listen_request(len(self.labels))

    def hear_file(self, path: Path, channels: Channels = "mix") -> list[PhoneFrames]:
        """What is heard in each channel. Raises what `open_audio` raises."""
        with open_audio(path, channels=channels) as audio:
            return self.hear(audio.blocks(), audio.channels)

    def hear(self, blocks: Iterable[NDArray[np.float32]], channels: int = 1) -> list[PhoneFrames]:
        """What is heard in blocks of samples, float32 [n, channels] at 16 kHz."""
        tables: list[list[NDArray[np.uint8]]] = [[np.zeros((0, COLUMNS), np.uint8)] for _ in range(channels)]
        for chunk, table in self._tables(_windows(blocks, channels)):
            tables[chunk.span.channel].append(table)
        return [PhoneFrames(np.concatenate(parts)) for parts in tables]

    def _tables(self, windows: Iterator[Chunk]) -> Iterator[tuple[Chunk, NDArray[np.uint8]]]:
        while batch := list(itertools.islice(windows, WINDOWS_AT_ONCE)):
            answers = self._recognizer.recognize(
                [chunk.samples for chunk in batch], [self._request] * len(batch)
            )
            for chunk, answer in zip(batch, answers, strict=True):
                if isinstance(answer, Failure):
                    raise answer.error
                yield chunk, core_table(chunk.span, answer.output, self.phones, len(self.labels))


def _windows(blocks: Iterable[NDArray[np.float32]], channels: int) -> Iterator[Chunk]:
    """The windows of all channels. Holds one window of each."""
    copies = itertools.tee(blocks, channels)
    plans = [plan_windows(_channel(own, at), at) for at, own in enumerate(copies)]
    for together in itertools.zip_longest(*plans):
        yield from (each for each in together if each is not None)


def _channel(blocks: Iterable[NDArray[np.float32]], channel: int) -> Iterator[NDArray[np.float32]]:
    return (block[:, channel] for block in blocks)
