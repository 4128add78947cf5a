"""Listens to one channel of a recording once more, after the words: in the engine, a few requests ahead.

Counts what that takes: the engine's time for the requests, and this thread's own time between them, reading
left out. What was heard is committed with its charge, so an attempt that follows listens to no channel twice
(law 4); what a channel took that was not kept is billed as wasted (law 5). What is asked, and what becomes of
the answers, is the business of `worker.jobs.diarize` and `worker.jobs.witness`.
"""

import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future
from concurrent.futures import TimeoutError as NotYet
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from spool.domain.recognition import Recognition
from spool.errors import JobCancelled, LeaseLost, SpoolError, StorageError
from spool.store.ledger.charges import Charge
from spool.store.passes import load_passes, save_pass
from spool.store.queue.leases import renew_lease
from spool.tables.jobs import ChannelPass, PassName
from worker.audio import open_audio
from worker.audio.stream import Channels
from worker.jobs.attempt import Attempt
from worker.jobs.decoding import WAIT_SECONDS
from worker.jobs.retry import retry_storage
from worker.models.requests import DecodeRequest

STEPS_AHEAD = 4

Samples = NDArray[np.float32]
Asked = tuple[Samples, DecodeRequest]
"""Samples, and what the engine is asked about them."""
T = TypeVar("T")
_DOING: dict[PassName, str] = {
    "speakers": "listening for speakers",
    "witness": "checking the words against their sounds",
    "language": "listening for the language",
}


class ChannelListener:
    """Listens to one channel, once."""

    def __init__(
        self, attempt: Attempt, listener: PassName, path: Path, channel: int, mode: Channels
    ) -> None:
        """The channel of the recording at `path`, read in this mode."""
        self.channel = channel
        self._attempt = attempt
        self._listener: PassName = listener
        self._path = path
        self._mode = mode
        self._flying: deque[Future[Recognition]] = deque()
        self._counted_ns = 0
        """This thread's processor time up to which its own work, reading left out, is in `_spent_ns`."""
        self._spent_ns = 0

    def listen(self, hear: Callable[[], T]) -> T:
        """What `hear` returns, which reads by `read` and asks by `run`. Raises what stops the attempt, after
        billing what was done as wasted."""
        self._counted_ns = time.thread_time_ns()
        try:
            heard = hear()
        except BaseException:
            self._count_own()
            self._abandon()
            raise
        self._count_own()
        return heard

    def save(self, heard: ChannelPass) -> None:
        """Save what was heard with its charge; it gets this attempt's number and its engine time. Raises
        LeaseLost and StorageError."""
        attempt = self._attempt
        commit = _Commit(attempt, heard, attempt.charge(heard.engine_ns, 0))
        try:
            retry_storage(commit, attempt.context.outage_seconds, attempt.lease.stop)
        except (LeaseLost, StorageError):
            self._waste(unless_saved=True)
            raise

    def made(self, fingerprint: str) -> ChannelPass:
        """What is saved of this channel so far: nothing but what it took."""
        return ChannelPass(
            self._listener, self.channel, self._spent_ns, self._attempt.claim.attempt, fingerprint
        )

    def read(self) -> Iterator[Samples]:
        """The channel's samples from the beginning, float32 [n] at 16 kHz."""
        attempt = self._attempt
        name, most = attempt.claim.job.name, attempt.context.settings.max_audio_seconds
        self._count_own()
        opened = partial(open_audio, self._path, channels=self._mode, name=name, max_seconds=most)
        with attempt.answering.opened(opened) as audio:
            for block in attempt.blocks_of(audio):
                attempt.check()
                self._counted_ns = time.thread_time_ns()
                yield block[:, self.channel]
                self._count_own()
        self._counted_ns = time.thread_time_ns()

    def run(self, model: str, asked: Iterable[Asked]) -> Iterator[Any]:
        """The output of each request by `model`, in order, a few of them ahead in the engine."""
        for samples, request in asked:
            self._submit(model, samples, request)
            if len(self._flying) == STEPS_AHEAD:
                yield self._await_output()
        while self._flying:
            yield self._await_output()

    def _count_own(self) -> None:
        """Count this thread's processor time since the last call, or since a block was read, as the engine's.

        As it goes, so that a killed worker's last heartbeat has most of what its listening took.
        """
        now = time.thread_time_ns()
        own_ns, self._counted_ns = now - self._counted_ns, now
        self._attempt.context.engine.add_busy(own_ns)
        self._spent_ns += own_ns

    def _submit(self, model: str, samples: Samples, request: DecodeRequest) -> None:
        attempt = self._attempt
        attempt.check()
        try:
            future = attempt.context.engine.submit(
                attempt.engine_name, samples, model, request, attempt.lease.stop
            )
        except JobCancelled:
            attempt.lease.check()  # says which of the two it was
            raise
        self._flying.append(future)

    def _await_output(self) -> Any:  # noqa: ANN401 - the model's own
        """The output of the first request under way."""
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
                raise type(error)(f"{name}: while {_DOING[self._listener]}: {error.message}") from error
        self._flying.popleft()
        self._spent_ns += result.engine_ns
        return result.output

    def _abandon(self) -> None:
        """Leave the engine, and bill what it did for this channel as wasted."""
        if self._flying:
            self._attempt.context.engine.forget(self._attempt.engine_name)
        while self._flying:
            try:
                self._spent_ns += self._flying.popleft().result().engine_ns
            except SpoolError:
                continue
        self._waste()

    def _waste(self, *, unless_saved: bool = False) -> None:
        """Bill what was done as wasted; `unless_saved`: unless the channel turns out to be saved."""
        claim, own = self._attempt.claim, (self._listener, self.channel) if unless_saved else None
        bill = self._attempt.charge(self._spent_ns, 0)
        self._attempt.context.wasted.add(
            claim.job.id, claim.attempt, bill, claim.job.batch_id, unless_heard=own
        )


@dataclass(slots=True)
class _Commit:
    """Saves what was heard in one channel. Called again after a commit whose outcome is unknown, it first
    checks whether that commit succeeded."""

    attempt: Attempt
    heard: ChannelPass
    bill: Charge
    tried: bool = False

    def __call__(self) -> None:
        """Commit. Raises LeaseLost and StorageError; nothing was written as far as the database reports."""
        claim, lease = self.attempt.claim, self.attempt.lease
        own = (self.heard.channel, claim.attempt)
        with self.attempt.context.db.begin() as tx:
            saved = load_passes(tx, claim.job.id, self.heard.listener) if self.tried else []
            if any((each.channel, each.attempt) == own for each in saved):
                return
            self.tried = True
            seconds = self.attempt.context.settings.lease_seconds
            cancel = renew_lease(tx, claim, seconds, lease.ran_seconds)
            # Last: the worker's other jobs wait for its row until the commit.
            save_pass(tx, claim, self.heard, self.bill)
        if cancel:
            lease.cancel()
