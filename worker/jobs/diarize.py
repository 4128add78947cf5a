"""The second pass of an attempt: who speaks when, channel by channel, through the engine, each on the bill.

`worker.jobs.channel_listener` listens and saves; how words get their speakers is in `worker.jobs.speakers`.
"""

import contextlib
import hashlib
import json
from base64 import b64decode, b64encode
from collections.abc import Iterator, Sequence
from concurrent.futures import TimeoutError as NotYet
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple, Self

import structlog
from sqlalchemy import Connection

from spool.domain.archive.diarization import Diarization as Asked
from spool.domain.transcript import DiarizationFacts, Transcript, Turn
from spool.failpoints import failpoint
from spool.store.passes import load_passes
from spool.store.transcripts.voices import forget_turn_prints, write_prints
from spool.tables.jobs import ChannelPass
from worker.audio.stream import Channels
from worker.diarization.base import (
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
from worker.diarization.takeover import Heard, Reason, hear
from worker.jobs.attempt import Attempt
from worker.jobs.channel_listener import ChannelListener
from worker.jobs.decoding import WAIT_SECONDS
from worker.jobs.speakers import has_speaker_per_channel, with_channels_as_speakers, with_speakers
from worker.models.requests import DecodeRequest

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
    def of_saved(cls, saved: ChannelPass, model: DiarizationModel, reason: Reason | None) -> Self:
        """What an attempt saved."""
        segments = [
            SpeakerSegment(turn.start, turn.end, int(turn.speaker.partition("_")[2])) for turn in saved.turns
        ]
        activity = None if saved.frames is None else SpeakerActivity.unpack(saved.frames)
        return cls(segments, activity, model, reason, saved.prints)

    def turns(self, channel: int) -> tuple[Turn, ...]:
        """The segments as they are saved."""
        return tuple(
            Turn(start=each.start, end=each.end, speaker=f"speaker_{each.speaker}", channel=channel)
            for each in self.segments
        )


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
            saved = load_passes(tx, self.attempt.claim.job.id, "speakers")
        ways = [(models.model, None), *((models.default, reason) for reason in Reason)]
        by_mark = {models.turns_mark(*way): way for way in ways}
        return {
            each.channel: ChannelSpeakers.of_saved(each, *by_mark[each.fingerprint])
            for each in saved
            if each.fingerprint in by_mark
        }

    def _listen(self, path: Path, channel: int, mode: Channels) -> ChannelSpeakers:
        """Listen to the channel, and save its turns."""
        asked, models = self.models.asked, self.models
        listener = ChannelListener(self.attempt, "speakers", path, channel, mode)
        bounds, speech = SpeakerBounds(asked.least, asked.most), self._speech_of(channel)
        heard = listener.listen(
            lambda: hear(
                models.model, models.default, listener.read, partial(_runs_of, listener), bounds, speech
            )
        )
        log.info("speakers", channel=channel, speakers=heard.diarization.speakers)
        if heard.reason is not None:
            log.warning(heard.reason.sentence(asked.model), channel=channel)
        found = ChannelSpeakers.of(heard, with_prints=asked.voice_prints)
        listener.save(
            replace(
                listener.made(models.turns_mark(found.model, found.reason)),
                turns=found.turns(channel),
                prints=found.prints,
                frames=None if found.activity is None else found.activity.pack(),
            )
        )
        return found

    def _speech_of(self, channel: int) -> SpeechHeard | None:
        """What the speech detector heard while this attempt decoded the words, if it did."""
        listeners = self.attempt.listeners
        if channel >= len(listeners) or not listeners[channel].has_ended:
            return None
        listener = listeners[channel]
        return SpeechHeard(listener.probabilities, listener.samples)

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


def _runs_of(listener: ChannelListener, model: DiarizationModel) -> RunSteps[Any, Any]:
    """Runs a model's steps in the engine."""

    def run(steps: Iterator[tuple[Floats, Any]]) -> Iterator[Any]:
        asked = ((samples, DecodeRequest(step=step)) for samples, step in steps)
        for output in listener.run(model.path, asked):
            failpoint("speakers.heard")
            yield output

    return run
