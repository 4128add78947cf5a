"""The second pass of an attempt: who speaks when, channel by channel, through the engine, each on the bill.

Turns are committed with their charge as soon as a channel is done, so an attempt that follows listens to no
channel twice (law 4). What a channel took whose turns were not kept is billed as wasted (law 5). How words
get their speakers is in `worker.jobs.speakers`.
"""

import contextlib
import hashlib
import json
import time
from base64 import b64decode, b64encode
from collections import deque
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import Future
from concurrent.futures import TimeoutError as NotYet
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple, Self

import structlog
from sqlalchemy import Connection

from spool.domain.archive.diarization import Diarization as Asked
from spool.domain.recognition import Recognition
from spool.domain.transcript import DiarizationFacts, Transcript, Turn
from spool.errors import JobCancelled, LeaseLost, SpoolError, StorageError
from spool.failpoints import failpoint
from spool.store.ledger.charges import Charge
from spool.store.queue.leases import renew_lease
from spool.store.transcripts.speakers import load_turns, save_turns
from spool.store.transcripts.voices import forget_turn_prints, write_prints
from spool.tables.jobs import SavedTurns
from worker.audio import open_audio
from worker.audio.stream import Channels
from worker.decode.types import DecodeRequest
from worker.diarization.base import (
    Blocks,
    DiarizationModel,
    Floats,
    RunSteps,
    SpeakerActivity,
    SpeakerBounds,
    SpeakerSegment,
    SpeechHeard,
)
from worker.diarization.prints import encoder_digest
from worker.diarization.registry import DEFAULT, load_diarization, path_of, place_of
from worker.diarization.takeover import Reason, hear
from worker.jobs.attempt import Attempt
from worker.jobs.decoding import WAIT_SECONDS
from worker.jobs.retry import retry_storage
from worker.jobs.speakers import has_speaker_per_channel, with_channels_as_speakers, with_speakers

log = structlog.get_logger(__name__)

STEPS_AHEAD = 4


class SpeakerModels(NamedTuple):
    """What a job asked for, the model of that name, and the one that takes over from it."""

    asked: Asked
    model: DiarizationModel
    default: DiarizationModel

    @classmethod
    def ready(cls, attempt: Attempt, asked: Asked) -> Self:
        """The models, fetched and loaded by the engine where that takes long. Raises ModelError, and what
        stops the attempt."""
        context, default = attempt.context, load_diarization(DEFAULT)
        place = place_of(asked.model, context.settings.diarization_models)
        if place == DEFAULT:
            return cls(asked, default, default)
        answer = context.engine.describe(path_of(place))
        while True:
            with contextlib.suppress(NotYet):
                answer.result(WAIT_SECONDS)
                return cls(asked, load_diarization(place), default)
            attempt.check()

    def transcript_mark(self, of_words: str) -> str:
        """The fingerprint of a transcript with speakers, from that of its words."""
        return self._hash(of_words, self.model.digest, self.default.digest)

    def turns_mark(self, model: DiarizationModel, reason: Reason | None) -> str:
        """The fingerprint of one channel's turns: by which model, and why."""
        return self._hash(model.digest, *([] if reason is None else [reason.name]))

    def _hash(self, *inputs: str) -> str:
        facts = [*inputs, self.asked.model_dump(mode="json")]
        return hashlib.sha256(json.dumps(facts, sort_keys=True).encode()).hexdigest()


@dataclass(frozen=True, slots=True)
class _Channel:
    """Who speaks in one channel, by which model, and why not by the one that was asked for."""

    segments: list[SpeakerSegment]
    activity: SpeakerActivity | None
    model: DiarizationModel
    reason: Reason | None
    prints: dict[str, str] | None = None


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
            saved = load_turns(tx, claim.job.id) if self.tried else []
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
    models: SpeakerModels
    voices: dict[str, bytes] | None = None
    """After `add_speakers`, voice prints by label; None where they stay what they were."""
    _spent_ns: int = 0
    _counted_ns: int = 0
    """This thread's processor time up to which its own work, reading left out, is in `_spent_ns`."""
    _flying: deque[Future[Recognition]] = field(default_factory=deque)

    def add_speakers(self, transcript: Transcript, path: Path) -> Transcript:
        """The transcript of the recording at `path` with its speakers.

        Raises what stops the attempt, as `Attempt.decode` does.
        """
        failpoint("speakers.begun")
        options = self.attempt.claim.job.options
        channels = transcript.audio.channels if options.channels == "separate" else 1
        if has_speaker_per_channel(self.models.asked, channels):
            self.voices = {}
            return with_channels_as_speakers(transcript)
        known = self._load_known()
        for channel in range(channels):
            if channel not in known:
                known[channel] = self._listen(path, channel, options.channels)
        failpoint("speakers.done")
        heard = [known[channel] for channel in range(channels)]
        segments = {channel: each.segments for channel, each in enumerate(heard)}
        activity = {channel: each.activity for channel, each in enumerate(heard)}
        result = with_speakers(transcript, segments, self._facts(heard), activity)
        self.voices = self._voices(known, result)
        return result

    def write_voices(self, tx: Connection) -> None:
        """Keep the speakers' voice prints with the job that has ended, if there are any."""
        job = self.attempt.claim.job
        if self.voices is not None:
            write_prints(tx, job.id, encoder_digest(), self.voices)
        if self.models.asked.voice_prints:
            forget_turn_prints(tx, job.id)

    def _voices(self, known: Mapping[int, _Channel], transcript: Transcript) -> dict[str, bytes] | None:
        """The speakers' voice prints by their labels in the transcript."""
        if not self.models.asked.voice_prints:
            return {}
        places = {(turn.channel, turn.start, turn.end): turn.speaker for turn in transcript.turns}
        voices: dict[str, bytes] = {}
        for channel, heard in known.items():
            if heard.prints is None:  # they were kept when the job ended before
                return None
            for each in heard.segments:
                label = places.get((channel, round(each.start, 3), round(each.end, 3)))
                data = heard.prints.get(f"speaker_{each.speaker}")
                if label is not None and data is not None:
                    voices[label] = b64decode(data)
        return voices

    def _load_known(self) -> dict[int, _Channel]:
        """The channels whose turns were saved by an attempt with the same models."""
        models = self.models
        with self.attempt.context.db.read() as tx:
            saved = load_turns(tx, self.attempt.claim.job.id)
        ways = [(models.model, None), *((models.default, reason) for reason in Reason)]
        by_mark = {models.turns_mark(*way): way for way in ways}
        return {
            each.channel: _Channel(
                _segments(each.turns),
                None if each.activity is None else SpeakerActivity.unpack(each.activity),
                *by_mark[each.fingerprint],
                each.prints,
            )
            for each in saved
            if each.fingerprint in by_mark
        }

    def _facts(self, channels: list[_Channel]) -> DiarizationFacts:
        """What told the speakers apart; where channels differ, the model that was asked for."""
        asked, models = self.models.asked.model, self.models
        reasons = {channel: each.reason for channel, each in enumerate(channels) if each.reason is not None}
        if not reasons:
            return DiarizationFacts(name=asked, sha256=models.model.digest)
        everywhere = len(reasons) == len(channels)
        notes = [
            reason.sentence(asked)
            if everywhere and len(channels) == 1
            else f"channel {channel}: {reason.sentence(asked)}"
            for channel, reason in reasons.items()
        ]
        name, model = (DEFAULT, models.default) if everywhere else (asked, models.model)
        return DiarizationFacts(name=name, sha256=model.digest, note="; ".join(notes))

    def _listen(self, path: Path, channel: int, mode: Channels) -> _Channel:
        self._spent_ns = 0
        models, read = self.models, self._reader(path, channel, mode)
        bounds = SpeakerBounds(models.asked.least, models.asked.most)
        self._counted_ns = time.thread_time_ns()
        try:
            speech = self._speech(channel)
            heard = hear(models.model, models.default, read, self._runs_of, bounds, speech)
        except BaseException:
            self._count_own()
            self._abandon()
            raise
        self._count_own()
        segments = heard.diarization.segments
        log.info("speakers", channel=channel, speakers=heard.diarization.speakers)
        if heard.reason is not None:
            log.warning(heard.reason.sentence(models.asked.model), channel=channel)
        prints = {
            f"speaker_{speaker}": b64encode(print_.astype("<f4").tobytes()).decode()
            for speaker, print_ in heard.diarization.prints.items()
            if models.asked.voice_prints
        }
        channel_result = _Channel(segments, heard.diarization.activity, heard.model, heard.reason, prints)
        self._save(channel, channel_result)
        return channel_result

    def _reader(self, path: Path, channel: int, mode: Channels) -> Callable[[], Blocks]:
        settings, name = self.attempt.context.settings, self.attempt.claim.job.name

        def read() -> Iterator[Floats]:
            most = settings.max_audio_seconds
            self._count_own()
            with open_audio(path, channels=mode, name=name, max_seconds=most) as audio:
                for block in audio.blocks():
                    self.attempt.check()
                    self._counted_ns = time.thread_time_ns()
                    yield block[:, channel]
                    self._count_own()
            self._counted_ns = time.thread_time_ns()

        return read

    def _speech(self, channel: int) -> SpeechHeard | None:
        """What the speech detector heard while this attempt decoded the words, if it did."""
        if channel >= len(self.attempt.listeners) or not self.attempt.listeners[channel].has_ended:
            return None
        listener = self.attempt.listeners[channel]
        return SpeechHeard(listener.probabilities, listener.samples)

    def _count_own(self) -> None:
        """Count this thread's processor time since the last call, or since a block was read, as the engine's.

        As it goes, so that a killed worker's last heartbeat has most of what its listening took.
        """
        now = time.thread_time_ns()
        own_ns, self._counted_ns = now - self._counted_ns, now
        self.attempt.context.engine.add_busy(own_ns)
        self._spent_ns += own_ns

    # --- steps ----------------------------------------------------------------------------------------------

    def _runs_of(self, model: DiarizationModel) -> RunSteps[Any, Any]:
        """Runs a model's steps in the engine, a few ahead, and counts their time."""

        def run(steps: Iterator[tuple[Floats, Any]]) -> Iterator[Any]:
            for samples, step in steps:
                self._submit(model.path, samples, step)
                if len(self._flying) == STEPS_AHEAD:
                    yield self._take_output()
            while self._flying:
                yield self._take_output()

        return run

    def _submit(self, path: str, samples: Floats, step: Any) -> None:  # noqa: ANN401 - the model's own
        attempt = self.attempt
        attempt.check()
        try:
            future = attempt.context.engine.submit(
                attempt.engine_name, samples, path, DecodeRequest(step=step), attempt.lease.stop
            )
        except JobCancelled:
            attempt.lease.check()  # says which of the two it was
            raise
        self._flying.append(future)

    def _take_output(self) -> Any:  # noqa: ANN401 - the model's own
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
        failpoint("speakers.heard")
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

    def _save(self, channel: int, found: _Channel) -> None:
        turns = tuple(
            Turn(start=each.start, end=each.end, speaker=f"speaker_{each.speaker}", channel=channel)
            for each in found.segments
        )
        attempt = self.attempt
        saved = SavedTurns(
            channel,
            turns,
            self._spent_ns,
            attempt.claim.attempt,
            self.models.turns_mark(found.model, found.reason),
            found.prints,
            None if found.activity is None else found.activity.pack(),
        )
        bill = attempt.charge(self._spent_ns, 0)
        try:
            retry_storage(_Commit(attempt, saved, bill), attempt.context.outage_seconds, attempt.lease.stop)
        except (LeaseLost, StorageError):
            self._waste(channel)
            raise


def _segments(turns: tuple[Turn, ...]) -> list[SpeakerSegment]:
    return [SpeakerSegment(turn.start, turn.end, int(turn.speaker.partition("_")[2])) for turn in turns]
