"""What the engine's child was asked and has not begun, and its way back to the parent.

Owns both ends of the pipe and the order of what waits: the receiver's thread takes requests in, the device's
asks for the next. Runs nothing itself and knows no model.
"""

import os
import threading
from collections import deque
from collections.abc import Callable, Hashable
from multiprocessing.connection import Connection
from typing import Protocol, cast

from worker.decode.types import SearchOptions
from worker.engine.ahead import WorkAhead
from worker.engine.protocol import (
    Describe,
    DropJob,
    Dropped,
    EngineOptions,
    Report,
    Request,
    Stop,
    Utterance,
    models_of,
)
from worker.engine.scheduler import QueuedUtterance, UtteranceQueue
from worker.live.feed import LiveFeed
from worker.models.base import BatchCost

GRACE_SECONDS = 0.5
LINGER_SECONDS = 0.25  # for the next audio of a live session that has fallen behind
Group = tuple[str, SearchOptions, bool]
"""What may share a batch: one model, asked alike; live or not."""


class Device(Protocol):
    """What the next batch depends on."""

    @property
    def catches_up(self) -> bool:
        """Whether a live session has fallen behind and is about to send more."""

    def may_serve(self, path: str) -> bool:
        """Whether work for this model may go first now."""

    def holds(self, path: str) -> bool:
        """Whether this model is in memory."""

    def cost(self, item: QueuedUtterance) -> BatchCost:
        """What an utterance takes of the device."""

    def most_samples(self, group: Hashable) -> float:
        """How much audio a batch of this group may hold, padding included."""


class Reports:
    """The way to the parent, for the receiver's thread and the device's."""

    def __init__(self, connection: "Connection[Report, Request]") -> None:
        self._connection = connection
        self._sending = threading.Lock()

    def send(self, report: Report) -> None:
        """Say it; raises BrokenPipeError or ConnectionResetError where the parent is gone."""
        with self._sending:
            self._connection.send(report)


class Inbox:
    """Requests of the parent that have not started yet."""

    def __init__(self, options: EngineOptions, reports: Reports, ahead: WorkAhead) -> None:
        self._reports = reports
        self._ahead = ahead
        self._waiting = UtteranceQueue(options.limits)
        self._utterances: dict[int, Utterance] = {}
        self._errands: deque[Describe] = deque()
        self._arrived = threading.Condition()
        self.live = 0
        """Feeds of live sessions, and questions about them, that wait. May be read without a lock."""

    def receive(self, connection: "Connection[Report, Request]") -> None:
        """The receiver thread. The end of the pipe is the end of the parent, kill -9 included."""
        try:
            while True:
                request = connection.recv()
                if isinstance(request, Stop):
                    os._exit(0)
                self._take_in(request)
        except (EOFError, OSError):
            os._exit(0)

    def _take_in(self, request: Utterance | Describe | DropJob) -> None:
        with self._arrived:
            if isinstance(request, Utterance):
                self._utterances[request.ticket] = request
                self._ahead.offer(request)
                live = isinstance(request.ask.step, LiveFeed)
                group = (request.model, request.options, live)
                self._waiting.add(
                    QueuedUtterance(request.ticket, request.job, group, request.samples, request.alone, live)
                )
            elif isinstance(request, DropJob):
                tickets = tuple(item.ticket for item in self._waiting.drop_job(request.job))
                for ticket in tickets:
                    del self._utterances[ticket]
                self._ahead.forget(tickets)
                # At once, and not behind the batch on the device: a cancelled job's slots are free again.
                self._reports.send(Dropped(tickets))
            else:
                self._errands.append(request)
            self._count_live()
            self._arrived.notify()

    def next(self, device: Device) -> Describe | list[Utterance]:
        """Wait for something to do: an errand, or the best batch there is now. What needs a model that may
        not be served yet comes last."""
        may_serve = device.may_serve
        with self._arrived:
            if device.catches_up:
                self._arrived.wait_for(self._anybody_speaks, LINGER_SECONDS)
            self._arrived.wait_for(self._anything)
            if not self._servable(may_serve):
                # Its own next job may be on its way: a moment's idleness costs less than loading twice.
                self._arrived.wait_for(lambda: self._servable(may_serve), GRACE_SECONDS)
                self._arrived.wait_for(self._anything)  # what waited may have been dropped
            for errand in self._errands:
                if all(map(may_serve, models_of(errand.model, errand.options))):
                    self._errands.remove(errand)
                    self._count_live()
                    return errand
            batch = self._waiting.next_batch(
                lambda group: all(map(may_serve, models_of(*cast("Group", group)[:2]))),
                device.cost,
                device.most_samples,
            )
            if not batch:
                errand = self._errands.popleft()
                self._count_live()
                return errand
            return self._taken(batch)

    def next_live(self, device: Device) -> Describe | list[Utterance] | None:
        """What live sessions wait for and can be done now, beside a batch that is on the device: by models
        that are in memory, since another may not come in now. None where there is nothing."""
        with self._arrived:
            for errand in self._errands:
                models = models_of(errand.model, errand.options)
                if isinstance(errand.ask.step, LiveFeed) and all(map(device.holds, models)):
                    self._errands.remove(errand)
                    self._count_live()
                    return errand
            batch = self._waiting.next_live(
                lambda group: all(map(device.holds, models_of(*cast("Group", group)[:2]))), device.cost
            )
            return self._taken(batch) if batch else None

    def _taken(self, batch: list[QueuedUtterance]) -> list[Utterance]:
        self._count_live()
        return [self._utterances.pop(item.ticket) for item in batch]

    def _count_live(self) -> None:
        """Called under the lock, whenever something came or went."""
        questions = sum(isinstance(errand.ask.step, LiveFeed) for errand in self._errands)
        self.live = questions + sum(item.live for item in self._waiting)

    def _anything(self) -> bool:
        return bool(self._errands) or len(self._waiting) > 0

    def _anybody_speaks(self) -> bool:
        return any(item.live for item in self._waiting)

    def _servable(self, may_serve: Callable[[str], bool]) -> bool:
        wanted = {models_of(errand.model, errand.options) for errand in self._errands}
        wanted.update(models_of(*cast("Group", item.group)[:2]) for item in self._waiting)
        return any(all(map(may_serve, paths)) for paths in wanted)
