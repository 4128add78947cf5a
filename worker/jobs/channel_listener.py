"""Listens to one channel of a recording for its speakers: runs the model's steps in the engine, a few ahead.

Counts what that takes: the engine's time for the steps, and this thread's own time between them, reading left
out. Who speaks when is the model's business; what is kept of it that of `worker.jobs.diarize`.
"""

import time
from collections import deque
from collections.abc import Iterator
from concurrent.futures import Future
from concurrent.futures import TimeoutError as NotYet
from functools import partial
from pathlib import Path
from typing import Any

from spool.domain.recognition import Recognition
from spool.errors import JobCancelled, SpoolError
from spool.failpoints import failpoint
from spool.store.ledger.charges import Charge
from worker.audio import open_audio
from worker.audio.stream import Channels
from worker.diarization.base import Blocks, DiarizationModel, Floats, RunSteps, SpeakerBounds, SpeechHeard
from worker.diarization.takeover import Heard, hear
from worker.jobs.attempt import Attempt
from worker.jobs.decoding import WAIT_SECONDS
from worker.models.requests import DecodeRequest

STEPS_AHEAD = 4


class ChannelListener:
    """Listens to one channel, once."""

    def __init__(self, attempt: Attempt, path: Path, channel: int, mode: Channels) -> None:
        """The channel of the recording at `path`, read in this mode."""
        self._attempt = attempt
        self._path = path
        self._channel = channel
        self._mode = mode
        self._flying: deque[Future[Recognition]] = deque()
        self._counted_ns = 0
        """This thread's processor time up to which its own work, reading left out, is in `spent_ns`."""
        self.spent_ns = 0

    def listen(self, model: DiarizationModel, default: DiarizationModel, bounds: SpeakerBounds) -> Heard:
        """Who speaks when, by `model`, else by `default`. Raises what stops the attempt, after billing what
        was done as wasted."""
        self._counted_ns = time.thread_time_ns()
        try:
            heard = hear(model, default, self._read, self._runs_of, bounds, self._speech())
        except BaseException:
            self._count_own()
            self._abandon()
            raise
        self._count_own()
        return heard

    @property
    def bill(self) -> Charge:
        """The charge for what was done so far."""
        return self._attempt.charge(self.spent_ns, 0)

    def waste(self, *, unless_saved: bool = False) -> None:
        """Bill what was done as wasted; `unless_saved`: unless the channel's turns turn out to be saved."""
        claim, channel = self._attempt.claim, self._channel if unless_saved else None
        self._attempt.context.wasted.add(
            claim.job.id, claim.attempt, self.bill, claim.job.batch_id, unless_turns=channel
        )

    def _read(self) -> Blocks:
        attempt = self._attempt
        name, most = attempt.claim.job.name, attempt.context.settings.max_audio_seconds
        self._count_own()
        opened = partial(open_audio, self._path, channels=self._mode, name=name, max_seconds=most)
        with attempt.answering.opened(opened) as audio:
            for block in attempt.blocks_of(audio):
                attempt.check()
                self._counted_ns = time.thread_time_ns()
                yield block[:, self._channel]
                self._count_own()
        self._counted_ns = time.thread_time_ns()

    def _speech(self) -> SpeechHeard | None:
        """What the speech detector heard while this attempt decoded the words, if it did."""
        listeners = self._attempt.listeners
        if self._channel >= len(listeners) or not listeners[self._channel].has_ended:
            return None
        listener = listeners[self._channel]
        return SpeechHeard(listener.probabilities, listener.samples)

    def _count_own(self) -> None:
        """Count this thread's processor time since the last call, or since a block was read, as the engine's.

        As it goes, so that a killed worker's last heartbeat has most of what its listening took.
        """
        now = time.thread_time_ns()
        own_ns, self._counted_ns = now - self._counted_ns, now
        self._attempt.context.engine.add_busy(own_ns)
        self.spent_ns += own_ns

    def _runs_of(self, model: DiarizationModel) -> RunSteps[Any, Any]:
        """Runs a model's steps in the engine, a few ahead."""

        def run(steps: Iterator[tuple[Floats, Any]]) -> Iterator[Any]:
            for samples, step in steps:
                self._submit(model.path, samples, step)
                if len(self._flying) == STEPS_AHEAD:
                    yield self._await_output()
            while self._flying:
                yield self._await_output()

        return run

    def _submit(self, path: str, samples: Floats, step: Any) -> None:  # noqa: ANN401 - the model's own
        attempt = self._attempt
        attempt.check()
        try:
            future = attempt.context.engine.submit(
                attempt.engine_name, samples, path, DecodeRequest(step=step), attempt.lease.stop
            )
        except JobCancelled:
            attempt.lease.check()  # says which of the two it was
            raise
        self._flying.append(future)

    def _await_output(self) -> Any:  # noqa: ANN401 - the model's own
        """The output of the first step under way."""
        future = self._flying[0]
        while True:
            try:
                result = future.result(WAIT_SECONDS)
                break
            except NotYet:
                self._attempt.check()
            except SpoolError as error:
                self._flying.popleft()
                name = self._attempt.claim.job.name
                raise type(error)(f"{name}: while listening for speakers: {error.message}") from error
        self._flying.popleft()
        self.spent_ns += result.engine_ns
        failpoint("speakers.heard")
        return result.output

    def _abandon(self) -> None:
        """Leave the engine, and bill what it did for this channel as wasted."""
        if self._flying:
            self._attempt.context.engine.forget(self._attempt.engine_name)
        while self._flying:
            try:
                self.spent_ns += self._flying.popleft().result().engine_ns
            except SpoolError:
                continue
        self.waste()
