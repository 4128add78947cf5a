"""The second pass of an attempt: who speaks when, channel by channel, through the engine, each on the bill.

Turns are committed with their charge as soon as a channel is done, so an attempt that follows listens to no
channel twice (law 4). What a channel took whose turns were not kept is billed as wasted (law 5).
`worker.jobs.channel_listener` listens; how words get their speakers is in `worker.jobs.speakers`.
"""

import contextlib
import hashlib
import json
from base64 import b64decode, b64encode
from collections.abc import Sequence
from concurrent.futures import TimeoutError as NotYet
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple, Self

import structlog
from sqlalchemy import Connection

from spool.domain.archive.diarization import Diarization as Asked
from spool.domain.transcript import DiarizationFacts, Transcript, Turn
from spool.errors import LeaseLost, StorageError
from spool.failpoints import failpoint
from spool.store.ledger.charges import Charge
from spool.store.queue.leases import renew_lease
from spool.store.transcripts.speakers import load_turns, save_turns
from spool.store.transcripts.voices import forget_turn_prints, write_prints
from spool.tables.jobs import SavedTurns
from worker.audio.stream import Channels
from worker.diarization.base import DiarizationModel, SpeakerActivity, SpeakerBounds, SpeakerSegment
from worker.diarization.prints import encoder_digest
from worker.diarization.registry import DEFAULT, load_diarization, path_of, place_of
from worker.diarization.takeover import Heard, Reason
from worker.jobs.attempt import Attempt
from worker.jobs.channel_listener import ChannelListener
from worker.jobs.decoding import WAIT_SECONDS
from worker.jobs.retry import retry_storage
from worker.jobs.speakers import has_speaker_per_channel, with_channels_as_speakers, with_speakers

log = structlog.get_logger(__name__)


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
class ChannelSpeakers:
    """Who speaks in one channel, by which model, and why not by the one that was asked for."""

    segments: Sequence[SpeakerSegment]
    activity: SpeakerActivity | None
    model: DiarizationModel
    reason: Reason | None
    prints: dict[str, str] | None
    """Voice prints by speaker, in base64; None if they were kept when the job ended before."""

    @classmethod
    def of(cls, heard: Heard, *, with_prints: bool) -> Self:
        """What a model has just heard."""
        found = heard.diarization
        prints = {
            f"speaker_{speaker}": b64encode(print_.astype("<f4").tobytes()).decode()
            for speaker, print_ in found.prints.items()
            if with_prints
        }
        return cls(found.segments, found.activity, heard.model, heard.reason, prints)

    @classmethod
    def of_saved(cls, saved: SavedTurns, model: DiarizationModel, reason: Reason | None) -> Self:
        """What an attempt saved."""
        segments = [
            SpeakerSegment(turn.start, turn.end, int(turn.speaker.partition("_")[2])) for turn in saved.turns
        ]
        activity = None if saved.activity is None else SpeakerActivity.unpack(saved.activity)
        return cls(segments, activity, model, reason, saved.prints)

    def turns(self, channel: int) -> tuple[Turn, ...]:
        """The segments as they are saved."""
        return tuple(
            Turn(start=each.start, end=each.end, speaker=f"speaker_{each.speaker}", channel=channel)
            for each in self.segments
        )


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


class SpeakerPass:
    """Finds the speakers of one claimed job's recording."""

    def __init__(self, attempt: Attempt, models: SpeakerModels) -> None:
        self.attempt = attempt
        self.models = models
        self.voices: dict[str, bytes] | None = None
        """After `add_speakers`, voice prints by label; None if they stay what they were."""

    def add_speakers(self, transcript: Transcript, path: Path) -> Transcript:
        """The transcript of the recording at `path` with its speakers.

        Raises what stops the attempt, as `Attempt.decode` does.
        """
        failpoint("speakers.begun")
        mode = self.attempt.claim.job.options.channels
        channels = transcript.audio.channels if mode == "separate" else 1
        if has_speaker_per_channel(self.models.asked, channels):
            self.voices = {}
            return with_channels_as_speakers(transcript)
        saved = self._load()
        heard = [saved.get(channel) or self._listen(path, channel, mode) for channel in range(channels)]
        failpoint("speakers.done")
        segments = {channel: list(each.segments) for channel, each in enumerate(heard)}
        activity = {channel: each.activity for channel, each in enumerate(heard)}
        result = with_speakers(transcript, segments, self._facts(heard), activity)
        self.voices = self._voices(heard, result)
        return result

    def write_voices(self, tx: Connection) -> None:
        """Keep the speakers' voice prints with the job that has ended, if there are any."""
        job = self.attempt.claim.job
        if self.voices is not None:
            write_prints(tx, job.id, encoder_digest(), self.voices)
        if self.models.asked.voice_prints:
            forget_turn_prints(tx, job.id)

    def _load(self) -> dict[int, ChannelSpeakers]:
        """By channel what an attempt with the same models saved."""
        models = self.models
        with self.attempt.context.db.read() as tx:
            saved = load_turns(tx, self.attempt.claim.job.id)
        ways = [(models.model, None), *((models.default, reason) for reason in Reason)]
        by_mark = {models.turns_mark(*way): way for way in ways}
        return {
            each.channel: ChannelSpeakers.of_saved(each, *by_mark[each.fingerprint])
            for each in saved
            if each.fingerprint in by_mark
        }

    def _listen(self, path: Path, channel: int, mode: Channels) -> ChannelSpeakers:
        """Listen to the channel, and save its turns."""
        asked = self.models.asked
        listener = ChannelListener(self.attempt, path, channel, mode)
        bounds = SpeakerBounds(asked.least, asked.most)
        heard = listener.listen(self.models.model, self.models.default, bounds)
        log.info("speakers", channel=channel, speakers=heard.diarization.speakers)
        if heard.reason is not None:
            log.warning(heard.reason.sentence(asked.model), channel=channel)
        found = ChannelSpeakers.of(heard, with_prints=asked.voice_prints)
        self._save(channel, found, listener)
        return found

    def _save(self, channel: int, found: ChannelSpeakers, listener: ChannelListener) -> None:
        attempt = self.attempt
        saved = SavedTurns(
            channel,
            found.turns(channel),
            listener.spent_ns,
            attempt.claim.attempt,
            self.models.turns_mark(found.model, found.reason),
            found.prints,
            None if found.activity is None else found.activity.pack(),
        )
        commit = _Commit(attempt, saved, listener.bill)
        try:
            retry_storage(commit, attempt.context.outage_seconds, attempt.lease.stop)
        except (LeaseLost, StorageError):
            listener.waste(unless_saved=True)
            raise

    def _voices(self, channels: Sequence[ChannelSpeakers], transcript: Transcript) -> dict[str, bytes] | None:
        """The speakers' voice prints by their labels in the transcript."""
        if not self.models.asked.voice_prints:
            return {}
        places = {(turn.channel, turn.start, turn.end): turn.speaker for turn in transcript.turns}
        voices: dict[str, bytes] = {}
        for channel, heard in enumerate(channels):
            if heard.prints is None:
                return None
            for each in heard.segments:
                label = places.get((channel, round(each.start, 3), round(each.end, 3)))
                data = heard.prints.get(f"speaker_{each.speaker}")
                if label is not None and data is not None:
                    voices[label] = b64decode(data)
        return voices

    def _facts(self, channels: Sequence[ChannelSpeakers]) -> DiarizationFacts:
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
