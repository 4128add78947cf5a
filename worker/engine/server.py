"""The engine's own process: takes what waits, runs it in batches on one thread, reports results.

It is the only process that touches the device, and it may die: Metal aborts on some errors and nothing here
can catch that. So it keeps nothing that matters; `worker.engine.client` restarts it and resends
what it had not answered. It knows no job beyond its name, no SQL and no files but the models.

Busy time (law 5) is the monotonic time around a batch that returned results, split over its utterances by
encoder frames so that the parts sum to the whole; the part of an utterance that fails is `lost_ns`, on
nobody's bill. A batch that raises is run again one utterance at a time, so that only the guilty one fails;
the time of what raised is lost too.
"""

import importlib
import math
import os
import signal
import sys
import threading
import time
from collections import deque
from collections.abc import Callable, Hashable, Sequence
from dataclasses import replace
from multiprocessing.connection import Connection
from typing import cast

from spool.errors import EngineError, ModelUnreadable, QualityUnknown, SpoolError
from spool.failpoints import failpoint
from worker.decode.types import SearchOptions, UtteranceResult
from worker.engine.ahead import WorkAhead
from worker.engine.audio_slots import AudioView, SlotLayout
from worker.engine.model_cache import ModelCache
from worker.engine.protocol import (
    Describe,
    Described,
    DropJob,
    Dropped,
    EngineOptions,
    Failure,
    Finished,
    Loaded,
    Loading,
    Ready,
    Recognition,
    Recognizer,
    Report,
    Request,
    Started,
    Stop,
    Unloaded,
    Utterance,
    WorksAhead,
    models_of,
)
from worker.engine.scheduler import BatchPace, QueuedUtterance, UtteranceQueue, split_exactly
from worker.live.feed import LiveAnswer, LiveFeed
from worker.models.base import BatchCost, ModelInfo

Loader = Callable[[str], Recognizer]
Answer = UtteranceResult | SpoolError
GRACE_SECONDS = 0.5
LIVE_SECONDS = 5.0  # so long after its last step a live session counts as open
LIVE_WAIT = 0.5  # of a live chunk: how long a batch of jobs may keep a session waiting
LINGER_SECONDS = 0.25  # for the next audio of a live session that has fallen behind
MOST_IN_A_ROW = 12  # batches of live sessions that have fallen behind, before jobs have one again
_Group = tuple[str, SearchOptions, bool]  # what may share a batch: one model, asked alike; live or not


def serve(connection: "Connection[Report, Request]", layout: SlotLayout, options: EngineOptions) -> None:
    """Run until the parent closes the pipe or dies; then the process ends at once."""
    # The parent decides when to stop: a Ctrl-C or a service manager's SIGTERM goes to the whole group, and
    # the jobs in flight are to be handed back first.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    module, _, name = options.loader.partition(":")
    reports = _Reports(connection)
    view = AudioView(layout)
    ahead = WorkAhead(lambda utterance: view.read(utterance.slot, utterance.samples))
    ahead.start()
    inbox = _Inbox(options, reports, ahead)
    threading.Thread(target=inbox.receive, args=(connection,), name="engine-inbox", daemon=True).start()
    home = importlib.import_module(module)
    loader = cast("Loader", getattr(home, name))
    if options.device and hasattr(home, "use_device"):
        home.use_device(options.device)
    device = BatchRunner(reports, view, loader, options, ahead)
    reports.send(Ready(os.getpid()))
    try:
        while True:
            work = inbox.next(device)
            if isinstance(work, Describe):
                device.describe(work)
            else:
                before = device.worked_ns
                device.run(work)
                time.sleep(pause_seconds(device.worked_ns - before, options.share))
    except (BrokenPipeError, ConnectionResetError):  # the parent is gone, noticed while sending
        os._exit(0)


def pause_seconds(worked_ns: int, share: float) -> float:
    """How long the device rests after so much work, so that it is busy for `share` of the time. Idle time:
    on nobody's bill."""
    return worked_ns / 1e9 * (1 - share) / share


class _Reports:
    """The way to the parent, for the receiver's thread and the device's."""

    def __init__(self, connection: "Connection[Report, Request]") -> None:
        self._connection = connection
        self._sending = threading.Lock()

    def send(self, report: Report) -> None:
        with self._sending:
            self._connection.send(report)


class _Inbox:
    """Requests of the parent that have not started yet."""

    def __init__(self, options: EngineOptions, reports: _Reports, ahead: WorkAhead) -> None:
        self._reports = reports
        self._ahead = ahead
        self._waiting = UtteranceQueue(options.limits)
        self._utterances: dict[int, Utterance] = {}
        self._errands: deque[Describe] = deque()
        self._arrived = threading.Condition()

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
            self._arrived.notify()

    def next(self, device: "BatchRunner") -> Describe | list[Utterance]:
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
                    return errand
            batch = self._waiting.next_batch(
                lambda group: all(map(may_serve, models_of(*cast("_Group", group)[:2]))),
                device.cost,
                device.most_samples,
            )
            if not batch:
                return self._errands.popleft()
            return [self._utterances.pop(item.ticket) for item in batch]

    def _anything(self) -> bool:
        return bool(self._errands) or len(self._waiting) > 0

    def _anybody_speaks(self) -> bool:
        return any(item.live for item in self._waiting)

    def _servable(self, may_serve: Callable[[str], bool]) -> bool:
        wanted = {models_of(errand.model, errand.options) for errand in self._errands}
        wanted.update(models_of(*cast("_Group", item.group)[:2]) for item in self._waiting)
        return any(all(map(may_serve, paths)) for paths in wanted)


class BatchRunner:
    """The loaded models and the one thread that runs them."""

    def __init__(
        self, reports: _Reports, view: AudioView, loader: Loader, options: EngineOptions, ahead: WorkAhead
    ) -> None:
        self._reports = reports
        self._ahead = ahead
        self._view = view
        self._loader = loader
        self._measured = options.measured
        self._model_cache: ModelCache[Recognizer] = ModelCache(options.model_cache)
        self.may_serve = self._model_cache.may_serve
        self._busy_total_ns = 0
        self.worked_ns = 0
        self._pace = BatchPace()
        self._live_seconds = math.inf  # the shortest chunk of the live sessions that are open
        self._live_until = 0.0
        self._catching_up = 0  # batches in a row

    def most_samples(self, group: Hashable) -> float:
        """How much audio a batch may hold, padding included: while somebody speaks, a batch of jobs is to be
        done before a live session has waited for `LIVE_WAIT` of a chunk."""
        if cast("_Group", group)[2]:
            return math.inf
        if time.monotonic() >= self._live_until:
            self._live_seconds = math.inf
        return self._pace.most_samples(group, LIVE_WAIT * self._live_seconds)

    @property
    def catches_up(self) -> bool:
        """Whether a live session has fallen behind and is about to send more: a batch of jobs in between
        would let it fall back further, on a slow device for good."""
        return 0 < self._catching_up <= MOST_IN_A_ROW

    def _note_live(self, batch: Sequence[Utterance], answers: Sequence[Recognition | Failure]) -> None:
        feeds = [utterance.ask.step for utterance in batch if isinstance(utterance.ask.step, LiveFeed)]
        self._catching_up = self._catching_up + 1 if any(feed.more for feed in feeds) else 0
        for answer in answers:
            if isinstance(answer, Recognition) and isinstance(answer.output, LiveAnswer):
                self._live_seconds = min(self._live_seconds, answer.output.chunk_seconds)
                self._live_until = time.monotonic() + LIVE_SECONDS

    def cost(self, item: QueuedUtterance) -> BatchCost:
        """What an utterance takes of the device; of a model that is not loaded yet, more than there is, so
        that it comes alone."""
        path, options, live = cast("_Group", item.group)
        if live:  # feeds are not padded to one length, and their sessions are in memory anyway
            return BatchCost(1, 0)
        costs = []
        for each in models_of(path, options):
            model = self._model_cache.peek(each)
            if model is None:
                return BatchCost(item.length, sys.maxsize)
            costs.append(model.cost(item.length, options))
        return BatchCost(costs[0].frames, sum(each.bytes for each in costs))

    def describe(self, request: Describe) -> None:
        """Answer what a model is, or what it says of options, as a `Described`."""
        try:
            model = self._recognizer(request.model, request.options)
            answer = model.info if request.options is None else model.prepare(request.options, request.ask)
        except Exception as error:  # noqa: BLE001 - whatever a file of a job raises is the job's
            self._reports.send(Described(request.ticket, _as_spool_error(error)))
        else:
            self._reports.send(Described(request.ticket, answer))

    def run(self, batch: Sequence[Utterance]) -> None:
        """Run one batch of one model and one set of options, and report it."""
        try:
            model = self._recognizer(batch[0].model, batch[0].options)
        except SpoolError as error:
            self._report([(utterance.ticket, error) for utterance in batch], 0, 0)
            return
        answers, busy_ns, lost_ns = self._attempt(model, batch)
        if len(batch) > 1 and isinstance(answers, SpoolError):
            self._report([], 0, lost_ns)
            for utterance in batch:
                self._run_alone(model, utterance)
            return
        if isinstance(answers, SpoolError):
            answers = [answers]
        self._report([(u.ticket, answer) for u, answer in zip(batch, answers, strict=True)], busy_ns, lost_ns)

    def _run_alone(self, model: Recognizer, utterance: Utterance) -> None:
        answers, busy_ns, lost_ns = self._attempt(model, [utterance])
        answer = answers if isinstance(answers, SpoolError) else answers[0]
        self._report([(utterance.ticket, answer)], busy_ns, lost_ns)

    def _attempt(
        self, model: Recognizer, batch: Sequence[Utterance]
    ) -> tuple[list[Answer] | SpoolError, int, int]:
        """Answers (or the error that the batch raised), busy and lost nanoseconds."""
        self._reports.send(Started(tuple(utterance.ticket for utterance in batch)))
        failpoint("engine.started")
        audio = [self._view.read(utterance.slot, utterance.samples) for utterance in batch]
        options: SearchOptions = batch[0].options
        begun = time.monotonic_ns()
        try:
            ahead = self._ahead.begin_batch([utterance.ticket for utterance in batch])
            asks = [utterance.ask for utterance in batch]
            if isinstance(model, WorksAhead) and any(made is not None for made in ahead):
                recognitions = model.recognize(audio, options, asks, ahead)
            else:
                recognitions = model.recognize(audio, options, asks)
            busy_ns = time.monotonic_ns() - begun
            self._note_live(batch, recognitions)
            samples = max(utterance.samples for utterance in batch) * len(batch)
            live = isinstance(batch[0].ask.step, LiveFeed)
            self._pace.measured((batch[0].model, options, live), samples, busy_ns)
            if len(recognitions) != len(batch):
                raise EngineError(f"The model answered {len(recognitions)} of {len(batch)} utterances.")
        except Exception as error:  # noqa: BLE001 - whatever a model raises belongs to its utterance, not to the process
            return _as_spool_error(error), 0, time.monotonic_ns() - begun
        finally:
            self._ahead.end_batch()
            self.worked_ns += time.monotonic_ns() - begun
        failpoint("engine.computed")
        shares = split_exactly(busy_ns, [answer.frames for answer in recognitions])
        pairs = list(zip(recognitions, shares, strict=True))
        lost_ns = sum(share for answer, share in pairs if isinstance(answer, Failure))
        answers = [_answered(answer, share, len(batch), model.info) for answer, share in pairs]
        return answers, busy_ns - lost_ns, lost_ns

    def _recognizer(self, path: str, options: SearchOptions | None) -> Recognizer:
        """The model, with the one that rescores where the options name it; that comes last and both stay."""
        model = self._model(path)
        if options is None or options.reader is None:
            return model
        return model.read_by(self._model(options.reader, beside=path))

    def _model(self, path: str, beside: str | None = None) -> Recognizer:
        model = self._model_cache.get(path)
        if model is not None:
            return model
        self._let_go(self._model_cache.make_room(path, beside))  # first: two models may not fit at once
        self._reports.send(Loading(path))
        failpoint("engine.loading")
        begun = time.monotonic_ns()
        try:
            model = self._measured_model(path, self._loader(path))
        except SpoolError:
            raise
        except Exception as error:
            raise ModelUnreadable(f"The model {path} cannot be loaded: {_one_line(error)}") from error
        finally:
            info = None if model is None else model.info
            self._reports.send(Loaded(path, time.monotonic_ns() - begun, info))
        self._ahead.serve(path, model.front if isinstance(model, WorksAhead) else None)
        self._let_go(self._model_cache.take_in(path, model, model.info.size, beside))
        return model

    def _measured_model(self, path: str, model: Recognizer) -> Recognizer:
        """The model, unless its weights are quantised and nobody has measured what that costs here."""
        if model.info.quantised and self._measured is not None and path not in self._measured:
            raise QualityUnknown(
                f"The weights of {path} are quantised, and their quality was not measured on this machine. "
                "Run spool-worker confirm --quality --model NAME --against MODEL, where MODEL is what they "
                "were made from, and start the worker again."
            )
        return model

    def _let_go(self, models: tuple[str, ...]) -> None:
        for model in models:
            self._ahead.serve(model, None)
        if models:
            self._reports.send(Unloaded(models))

    def _report(self, results: Sequence[tuple[int, Answer]], busy_ns: int, lost_ns: int) -> None:
        self._busy_total_ns += busy_ns
        self._reports.send(Finished(tuple(results), busy_ns, lost_ns, self._busy_total_ns))
        failpoint("engine.reported")


def _answered(answer: Recognition | Failure, engine_ns: int, batch: int, info: ModelInfo) -> Answer:
    if isinstance(answer, Failure):
        return answer.error
    return UtteranceResult(
        answer.hypotheses,
        answer.words,
        answer.frames,
        engine_ns,
        batch,
        texts=answer.texts,
        weights=replace(info, language_model=answer.language_model).makers,
        lattice=answer.lattice,
        language=answer.language,
        languages=answer.languages,
        output=answer.output,
    )


def _as_spool_error(error: Exception) -> SpoolError:
    if isinstance(error, SpoolError):
        return error
    return EngineError(f"The model failed on this utterance: {_one_line(error)}")


def _one_line(error: Exception) -> str:
    return f"{type(error).__name__}: {' '.join(str(error).split())}"[:500]
