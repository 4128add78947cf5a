"""The engine child's queue of requests, and its reports to the parent.

Owns the child's side of the pipe and the order of waiting requests: the receiver thread adds them, the device
thread takes the next.
"""

import os
from collections import deque
from collections.abc import Callable, Hashable
from multiprocessing.connection import Connection
from typing import Protocol, cast

from spool import clock
from worker.engine.ahead import WorkAhead
from worker.engine.handover import Unsettled
from worker.engine.protocol import (
    Describe,
    DropJob,
    Dropped,
    EngineOptions,
    Report,
    Request,
    Settled,
    Stop,
    Utterance,
    models_of,
)
from worker.engine.scheduler import QueuedUtterance, UtteranceQueue
from worker.models.base import BatchCost
from worker.models.requests import SearchOptions

GRACE_SECONDS = 0.5
LINGER_SECONDS = 0.25  # wait for the next audio of a live session that has fallen behind
Group = tuple[str, SearchOptions, bool]
"""Utterances of one group may share a batch: model, options, and whether they are live."""


class Device(Protocol):
    """The properties of the device on which the next batch depends."""

    @property
    def catches_up(self) -> bool:
        """Whether a live session has fallen behind and is about to send more."""

    def may_serve(self, path: str) -> bool:
        """Whether work for this model may run first now."""

    def holds(self, path: str) -> bool:
        """Whether this model is in memory."""

    def cost(self, item: QueuedUtterance) -> BatchCost:
        """The device resources that an utterance takes."""

    def most_samples(self, group: Hashable) -> float:
        """How much audio a batch of this group may hold, padding included."""


class Reports:
    """Sends reports to the parent, from the receiver thread and the device thread."""

    def __init__(self, connection: "Connection[Report, Request]") -> None:
        self._connection = connection
        self._sending = clock.Lock()

    def send(self, report: Report) -> None:
        """Send a report; raises BrokenPipeError or ConnectionResetError if the parent is gone."""
        with self._sending:
            self._connection.send(report)


class Inbox:
    """Requests of the parent that have not started yet."""

    def __init__(
        self, options: EngineOptions, reports: Reports, ahead: WorkAhead, unsettled: Unsettled | None = None
    ) -> None:
        self._reports = reports
        self._unsettled = unsettled or Unsettled()
        self._ahead = ahead
        self._waiting = UtteranceQueue(options.limits)
        self._utterances: dict[int, Utterance] = {}
        self._describes: deque[Describe] = deque()
        self._arrived = clock.Condition()
        self.live = 0
        """Waiting feeds of live sessions, and `Describe`s for them. May be read without a lock."""

    def receive(self, connection: "Connection[Report, Request]") -> None:
        """The receiver thread, which ends the process. The pipe closes when the parent ends, even by
        kill -9."""
        try:
            while True:
                request = connection.recv()
                if isinstance(request, Stop):
                    os._exit(0)
                self._take_in(request)
        except (EOFError, OSError):
            self._unsettled.hand_over()
            os._exit(0)

    def _take_in(self, request: Utterance | Settled | Describe | DropJob) -> None:
        if isinstance(request, Settled):
            self._unsettled.settle(request.job, request.mark)
            return
        with self._arrived:
            if isinstance(request, Utterance):
                self._utterances[request.ticket] = request
                self._ahead.offer(request)
                live = request.is_live
                group = (request.model, request.search, live)
                self._waiting.add(
                    QueuedUtterance(
                        request.ticket,
                        request.job,
                        group,
                        request.samples,
                        request.alone,
                        live,
                        request.priority,
                    )
                )
            elif isinstance(request, DropJob):
                tickets = tuple(item.ticket for item in self._waiting.drop_job(request.job))
                for ticket in tickets:
                    del self._utterances[ticket]
                self._ahead.forget(tickets)
                # At once rather than after the current batch, so that a cancelled job's slots are free.
                self._reports.send(Dropped(tickets))
            else:
                self._describes.append(request)
            self._count_live()
            self._arrived.notify()

    def next(self, device: Device) -> Describe | list[Utterance]:
        """Wait for work: a `Describe`, or the best batch available now. Work for a model that may not be
        served yet comes last."""
        may_serve = device.may_serve
        with self._arrived:
            if device.catches_up:
                self._arrived.wait_for(self._has_live, LINGER_SECONDS)
            self._arrived.wait_for(self._has_work)
            if not self._servable(may_serve):
                # A job for the loaded model may be coming: a moment's idleness costs less than loading twice.
                self._arrived.wait_for(lambda: self._servable(may_serve), GRACE_SECONDS)
                self._arrived.wait_for(self._has_work)  # what waited may have been dropped
            for describe in self._describes:
                if all(map(may_serve, models_of(describe.model, describe.search))):
                    self._describes.remove(describe)
                    self._count_live()
                    return describe
            batch = self._waiting.next_batch(
                lambda group: all(map(may_serve, models_of(*cast("Group", group)[:2]))),
                device.cost,
                device.most_samples,
            )
            if not batch:
                describe = self._describes.popleft()
                self._count_live()
                return describe
            return self._take_utterances(batch)

    def next_live(self, device: Device) -> Describe | list[Utterance] | None:
        """Work of live sessions that can interrupt the current batch, if any: only for models in memory,
        since no other can be loaded now."""
        with self._arrived:
            for describe in self._describes:
                models = models_of(describe.model, describe.search)
                if describe.is_live and all(map(device.holds, models)):
                    self._describes.remove(describe)
                    self._count_live()
                    return describe
            batch = self._waiting.next_live(
                lambda group: all(map(device.holds, models_of(*cast("Group", group)[:2]))), device.cost
            )
            return self._take_utterances(batch) if batch else None

    def _take_utterances(self, batch: list[QueuedUtterance]) -> list[Utterance]:
        self._count_live()
        return [self._utterances.pop(item.ticket) for item in batch]

    def _count_live(self) -> None:
        """Update `live`. Called under the lock after each change."""
        questions = sum(describe.is_live for describe in self._describes)
        self.live = questions + sum(item.live for item in self._waiting)

    def _has_work(self) -> bool:
        return bool(self._describes) or len(self._waiting) > 0

    def _has_live(self) -> bool:
        return any(item.live for item in self._waiting)

    def _servable(self, may_serve: Callable[[str], bool]) -> bool:
        wanted = {models_of(describe.model, describe.search) for describe in self._describes}
        wanted.update(models_of(*cast("Group", item.group)[:2]) for item in self._waiting)
        return any(all(map(may_serve, paths)) for paths in wanted)
