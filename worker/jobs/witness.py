"""The last pass of an attempt: what the sounds say of the words, through the engine and on the bill.

`worker.jobs.channel_listener` listens and saves; verdicts are those of `worker.witness`.
"""

import contextlib
from collections import deque
from collections.abc import Iterator
from concurrent.futures import TimeoutError as NotYet
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple, Self

import numpy as np
import structlog
from sqlalchemy import Connection

from spool.catalogue import installed_path
from spool.domain.recognition import ChunkSpan
from spool.domain.transcript import ModelFacts, Transcript
from spool.failpoints import failpoint
from spool.sounds.dictionary import DEFAULT_WITNESS, lexicon_of
from spool.sounds.lexicon import Lexicon
from spool.sounds.phones import COLUMNS, PhoneFrames, PhoneMap
from spool.store.passes import drop_frames, load_passes
from spool.store.transcripts.sounds import ChannelSounds, write_sounds
from worker.audio.stream import Channels
from worker.jobs.attempt import Attempt
from worker.jobs.channel_listener import Asked, ChannelListener
from worker.jobs.decoding import WAIT_SECONDS
from worker.jobs.speech_check import drop_flagged
from worker.models.base import ModelInfo
from worker.models.hama.config import SYMBOLS, read_symbols
from worker.witness.judge import check_transcript
from worker.witness.listening import core_table, listen_request, plan_windows
from worker.witness.model import witness_mark
from worker.witness.report import add_findings, transcript_to_check

log = structlog.get_logger(__name__)


class WitnessModel(NamedTuple):
    """The phoneme model that the engine has loaded, and what this process needs of it."""

    info: ModelInfo
    labels: int
    phones: PhoneMap
    lexicon: Lexicon

    @classmethod
    def ready(cls, attempt: Attempt) -> Self:
        """The model, fetched and loaded by the engine. Raises ModelError, and what stops the attempt."""
        answer = attempt.context.engine.describe(DEFAULT_WITNESS)
        while True:
            with contextlib.suppress(NotYet):
                info = answer.result(WAIT_SECONDS)
                break
            attempt.check()
        folder = installed_path(DEFAULT_WITNESS)
        symbols = read_symbols(folder / SYMBOLS)
        return cls(info, len(symbols), PhoneMap(symbols), lexicon_of(folder))

    def mark(self, *inputs: str) -> str:
        """The fingerprint of what it hears, or of what follows about a transcript with this fingerprint."""
        return witness_mark(self.info.digest, *inputs)


class WitnessPass:
    """Checks the words of one claimed job."""

    def __init__(self, attempt: Attempt, model: WitnessModel) -> None:
        self._attempt = attempt
        self._model = model
        self._kept: list[ChannelSounds] = []

    def add_evidence(self, transcript: Transcript, path: Path) -> Transcript:
        """The transcript of the recording at `path` with what its sounds say of its words.

        Raises what stops the attempt, as `Attempt.decode` does.
        """
        failpoint("witness.begun")
        mode = self._attempt.claim.job.options.channels
        channels = transcript.audio.channels if mode == "separate" else 1
        saved = self._load()
        frames = [
            saved[channel] if channel in saved else self._listen(path, channel, mode)
            for channel in range(channels)
        ]
        failpoint("witness.done")
        model, given = self._model, transcript_to_check(transcript)
        findings = check_transcript(given, frames, model.lexicon, self._attempt.check)
        if not findings.abstained:
            self._kept = [ChannelSounds.of(each) for each in frames]
        log.info("witness", without_evidence=findings.words_without_evidence, abstained=findings.abstained)
        facts = ModelFacts(name=model.info.name, sha256=model.info.sha256)
        checked = add_findings(transcript, findings, facts)
        return drop_flagged(checked) if self._attempt.claim.job.options.drop_unsupported else checked

    def keep_sounds(self, tx: Connection) -> None:
        """Keep what was heard as the search by sound needs it, in the commit that ends the job; nothing if
        the model does not know the language."""
        job = self._attempt.claim.job
        write_sounds(tx, job.id, job.project, self._kept)
        drop_frames(tx, job.id, "witness")

    def _load(self) -> dict[int, PhoneFrames]:
        """By channel what an attempt with the same model saved."""
        with self._attempt.context.db.read() as tx:
            saved = load_passes(tx, self._attempt.claim.job.id, "witness")
        mark = self._model.mark()
        return {
            each.channel: PhoneFrames.unpack(each.frames)
            for each in saved
            if each.fingerprint == mark and each.frames is not None
        }

    def _listen(self, path: Path, channel: int, mode: Channels) -> PhoneFrames:
        """Listen to the channel, and save what is heard."""
        listener = ChannelListener(self._attempt, "witness", path, channel, mode)
        frames = listener.listen(lambda: self._hear(listener))
        listener.save(replace(listener.made(self._model.mark()), frames=frames.pack()))
        return frames

    def _hear(self, listener: ChannelListener) -> PhoneFrames:
        model, spans = self._model, deque[ChunkSpan]()
        request = listen_request(model.labels)

        def asked() -> Iterator[Asked]:
            for window in plan_windows(listener.read()):
                spans.append(window.span)
                yield window.samples, request

        tables = [np.zeros((0, COLUMNS), np.uint8)]
        for output in listener.run(DEFAULT_WITNESS, asked()):
            failpoint("witness.heard")
            tables.append(core_table(spans.popleft(), output, model.phones, model.labels))
        return PhoneFrames(np.concatenate(tables))
