"""The second pass of an attempt: who speaks when, channel by channel, through the engine, each on the bill.

Turns are committed with their charge as soon as a channel is done, so an attempt that follows listens to no
channel twice (law 4). What a channel took whose turns were not kept is billed as wasted (law 5). How words
get their speakers is in `worker.jobs.speakers`.
"""

import hashlib
import json
from collections import deque
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from concurrent.futures import TimeoutError as NotYet
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import structlog

from spool.domain.options import Diarization as Asked
from spool.domain.transcript import ModelFacts, Transcript, Turn
from spool.errors import JobCancelled, LeaseLost, SpoolError, StorageError
from spool.failpoints import failpoint
from spool.store.ledger.charges import Charge
from spool.store.queue.leases import renew_lease
from spool.store.transcripts.speakers import SavedTurns, save_turns, saved_turns
from worker.audio import open_audio
from worker.audio.stream import Channels
from worker.decode.types import DecodeRequest, SearchOptions, UtteranceResult
from worker.diarization.base import Blocks, DiarizationModel, Floats, SpeakerBounds, SpeakerSegment
from worker.diarization.registry import load_diarization
from worker.jobs.attempt import Attempt
from worker.jobs.decoding import WAIT_SECONDS
from worker.jobs.retry import retry_storage
from worker.jobs.speakers import has_speaker_per_channel, with_channels_as_speakers, with_speakers

log = structlog.get_logger(__name__)

STEPS_AHEAD = 4


def speakers_mark(of_words: str, asked: Asked) -> str:
    """The fingerprint of a transcript with speakers, from that of its words."""
    inputs = [of_words, asked.model_dump(mode="json"), load_diarization(asked.model).digest]
    return hashlib.sha256(json.dumps(inputs, sort_keys=True).encode()).hexdigest()


@dataclass(slots=True)
class _Commit:
    """Saves one channel's turns. Called again after a commit whose outcome is unknown, it first checks
    whether that commit succeeded."""

    attempt: Attempt
    turns: SavedTurns
    bill: Charge
    tried: bool = False

    def __call__(self) -> None:
        """Commit. Raises LeaseLost and StorageError; nothing was written as far as the database reports."""
        claim, lease = self.attempt.claim, self.attempt.lease
        own = (self.turns.channel, claim.attempt)
        with self.attempt.context.db.begin() as tx:
            saved = saved_turns(tx, claim.job.id) if self.tried else []
            if any((each.channel, each.attempt) == own for each in saved):
                return
            self.tried = True
            seconds = self.attempt.context.settings.lease_seconds
            cancel = renew_lease(tx, claim, seconds, lease.ran_seconds)
            # Last: the worker's other jobs wait for its row until the commit.
            save_turns(tx, claim, self.turns, self.bill)
        if cancel:
            lease.cancel()


@dataclass(slots=True)
class SpeakerPass:
    """Finds the speakers of one claimed job's recording."""

    attempt: Attempt
    asked: Asked
    _model: DiarizationModel = field(init=False)
    _spent_ns: int = 0
    _flying: deque[Future[UtteranceResult]] = field(default_factory=deque)

    def __post_init__(self) -> None:
        """Raises ModelError."""
        self._model = load_diarization(self.asked.model)

    @property
    def engine_path(self) -> str:
        """What the engine loads the network by."""
        return self._model.path

    def add_speakers(self, transcript: Transcript, path: Path) -> Transcript:
        """The transcript of the recording at `path` with its speakers.

        Raises what stops the attempt, as `Attempt.decode` does.
        """
        failpoint("speakers.begun")
        options = self.attempt.claim.job.options
        channels = transcript.audio.channels if options.channels == "separate" else 1
        if has_speaker_per_channel(self.asked, channels):
            return with_channels_as_speakers(transcript)
        mark = self._mark()
        with self.attempt.context.db.read() as tx:
            saved = saved_turns(tx, self.attempt.claim.job.id)
        known = {each.channel: each.turns for each in saved if each.fingerprint == mark}
        segments = {
            channel: _segments(known[channel])
            if channel in known
            else self._listened(path, channel, options.channels, mark)
            for channel in range(channels)
        }
        failpoint("speakers.done")
        return with_speakers(
            transcript, segments, ModelFacts(name=self.asked.model, sha256=self._model.digest)
        )

    def _mark(self) -> str:
        inputs = [self.asked.model_dump(mode="json"), self._model.digest]
        return hashlib.sha256(json.dumps(inputs, sort_keys=True).encode()).hexdigest()

    def _listened(self, path: Path, channel: int, mode: Channels, mark: str) -> list[SpeakerSegment]:
        self._spent_ns = 0
        try:
            result = self._model.diarize(
                self._reader(path, channel, mode), self._run, SpeakerBounds(self.asked.least, self.asked.most)
            )
        except BaseException:
            self._abandon()
            raise
        log.info("speakers", channel=channel, speakers=result.speakers)
        self._save(channel, result.segments, mark)
        return result.segments

    def _reader(self, path: Path, channel: int, mode: Channels) -> Callable[[], Blocks]:
        settings, name = self.attempt.context.settings, self.attempt.claim.job.name

        def read() -> Iterator[Floats]:
            most = settings.max_audio_seconds
            with open_audio(path, channels=mode, name=name, max_seconds=most) as audio:
                for block in audio.blocks():
                    self.attempt.check()
                    yield block[:, channel]

        return read

    # --- steps ----------------------------------------------------------------------------------------------

    def _run(self, steps: Iterator[tuple[Floats, Any]]) -> Iterator[Any]:
        """Runs steps in the engine, a few ahead, and counts their time."""
        for samples, step in steps:
            self._submit(samples, step)
            if len(self._flying) == STEPS_AHEAD:
                yield self._landed()
        while self._flying:
            yield self._landed()

    def _submit(self, samples: Floats, step: Any) -> None:  # noqa: ANN401 - the model's own
        attempt = self.attempt
        attempt.check()
        ask = DecodeRequest(step=step)
        try:
            future = attempt.context.engine.submit(
                attempt.engine_name, samples, self._model.path, SearchOptions(), attempt.lease.stop, ask
            )
        except JobCancelled:
            attempt.lease.check()  # says which of the two it was
            raise
        self._flying.append(future)

    def _landed(self) -> Any:  # noqa: ANN401 - the model's own
        future = self._flying[0]
        while True:
            try:
                result = future.result(WAIT_SECONDS)
                break
            except NotYet:
                self.attempt.check()
            except SpoolError as error:
                self._flying.popleft()
                name = self.attempt.claim.job.name
                raise type(error)(f"{name}: while listening for speakers: {error.message}") from error
        self._flying.popleft()
        self._spent_ns += result.engine_ns
        return result.output

    def _abandon(self) -> None:
        """Leave the engine, and bill what it did for this channel as wasted."""
        if self._flying:
            self.attempt.context.engine.forget(self.attempt.engine_name)
        while self._flying:
            try:
                self._spent_ns += self._flying.popleft().result().engine_ns
            except SpoolError:
                continue
        self._waste(None)

    def _waste(self, channel: int | None) -> None:
        claim = self.attempt.claim
        bill = self.attempt.charge(self._spent_ns, 0)
        self.attempt.context.wasted.add(
            claim.job.id, claim.attempt, bill, claim.job.batch_id, unless_turns=channel
        )

    def _save(self, channel: int, segments: list[SpeakerSegment], mark: str) -> None:
        turns = tuple(
            Turn(start=each.start, end=each.end, speaker=f"speaker_{each.speaker}", channel=channel)
            for each in segments
        )
        attempt = self.attempt
        saved = SavedTurns(channel, turns, self._spent_ns, attempt.claim.attempt, mark)
        bill = attempt.charge(self._spent_ns, 0)
        try:
            retry_storage(
                _Commit(attempt, saved, bill), attempt.context.settings.lease_seconds, attempt.lease.stop
            )
        except (LeaseLost, StorageError):
            self._waste(channel)
            raise


def _segments(turns: tuple[Turn, ...]) -> list[SpeakerSegment]:
    return [SpeakerSegment(turn.start, turn.end, int(turn.speaker.partition("_")[2])) for turn in turns]
