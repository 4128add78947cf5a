"""The engine's process: takes waiting work, runs it in batches on one thread, reports results.

It is the only process that touches the device, and it may die: Metal aborts on some errors, which cannot be
caught. So it keeps no state that matters; `worker.engine.client` restarts it and sends unanswered requests
again.

Busy time (law 5) is the monotonic time around a batch that returned results, split over its utterances by
encoder frames so that the parts sum to the whole; the part of an utterance that fails is `lost_ns`, which is
not billed. A batch that raises is run again one utterance at a time, so that only the faulty one fails; the
time of the batch that raised is lost too.
"""

import importlib
import math
import os
import signal
import sys
from collections.abc import Callable, Hashable, Sequence
from dataclasses import replace
from multiprocessing.connection import Connection
from typing import cast

from spool import clock
from spool.domain.recognition import Recognition
from spool.errors import EngineError, ModelUnreadable, QualityUnknown, SpoolError
from spool.failpoints import failpoint
from worker.engine.ahead import WorkAhead
from worker.engine.audio_slots import AudioView, SlotLayout
from worker.engine.handover import HandoverFolder, Unsettled
from worker.engine.inbox import Group, Inbox, Reports
from worker.engine.model_cache import ModelCache
from worker.engine.protocol import (
    CannotStart,
    Describe,
    Described,
    EngineOptions,
    Failure,
    Finished,
    Loaded,
    Loading,
    Ready,
    Recognizer,
    Report,
    Request,
    Started,
    Unloaded,
    Utterance,
    WorksAhead,
    models_of,
)
from worker.engine.scheduler import BatchPace, QueuedUtterance, split_exactly
from worker.engine.turns import LiveTurns, Work
from worker.live.feed import LiveAnswer, LiveFeed
from worker.models.base import BatchCost, ModelInfo
from worker.models.requests import SearchOptions
from worker.models.turns import giving_way_to

Loader = Callable[[str], Recognizer]
Answer = Recognition | SpoolError
LIVE_SECONDS = 5.0  # a live session counts as open for this long after its last step
LIVE_WAIT = 0.5  # the share of a live chunk's length that a batch of jobs may keep a session waiting
MOST_IN_A_ROW = 12  # consecutive batches of live sessions that have fallen behind, before one of jobs


def serve(connection: "Connection[Report, Request]", layout: SlotLayout, options: EngineOptions) -> None:
    """Run until the parent closes the pipe; if it has died, the batch on the device is finished first."""
    # The parent decides when to stop: Ctrl-C and a service manager's SIGTERM reach the whole group, but jobs
    # in flight must be handed back first.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    module, _, name = options.loader.partition(":")
    reports = Reports(connection)
    view = AudioView(layout)
    ahead = WorkAhead(lambda utterance: view.read(utterance.slot, utterance.samples))
    ahead.start()
    unsettled = Unsettled(options.handover, options.worker_id)
    inbox = Inbox(options, reports, ahead, unsettled)
    receiver = clock.Thread(target=inbox.receive, args=(connection,), name="engine-inbox", daemon=True)
    receiver.start()
    try:
        home = importlib.import_module(module)
        if options.device and hasattr(home, "use_device"):
            home.use_device(options.device)
    except (ImportError, EngineError) as error:  # the installation or the settings do not fit the machine
        reports.send(CannotStart(str(error).removesuffix(".")))
        return
    loader = cast("Loader", getattr(home, name))
    device = BatchRunner(reports, view, loader, options, ahead, inbox, unsettled)
    reports.send(Ready(os.getpid()))
    try:
        while True:
            before = device.worked_ns
            device.do(inbox.next(device))
            clock.sleep(pause_seconds(device.worked_ns - before, options.share))
    except (BrokenPipeError, ConnectionResetError):  # the parent is gone, noticed while sending
        unsettled.stop()
        receiver.join()  # it hands over and ends the process


def pause_seconds(worked_ns: int, share: float) -> float:
    """The pause after `worked_ns` of work for the device to be busy for `share` of the time. It counts as
    idle."""
    return worked_ns / 1e9 * (1 - share) / share


class BatchRunner:
    """The loaded models and the one thread that runs them."""

    def __init__(
        self,
        reports: Reports,
        view: AudioView,
        loader: Loader,
        options: EngineOptions,
        ahead: WorkAhead,
        inbox: Inbox | None = None,
        unsettled: Unsettled | None = None,
    ) -> None:
        """inbox: the source of live steps that may interrupt a batch of jobs between layers; None: none."""
        self._reports = reports
        self._unsettled = unsettled or Unsettled()
        self._handover = HandoverFolder(options.handover)
        self._inbox = inbox
        self._ahead = ahead
        self._view = view
        self._loader = loader
        self._measured = options.measured
        self._model_cache: ModelCache[Recognizer] = ModelCache(options.model_cache)
        self.may_serve = self._model_cache.may_serve
        self.worked_ns = 0
        self._pace = BatchPace()
        self._live_seconds = math.inf  # the shortest chunk of the live sessions that are open
        self._live_until = 0.0
        self._catching_up = 0  # batches in a row

    def most_samples(self, group: Hashable) -> float:
        """The most audio of a batch, padding included: while a live session is open, a batch of jobs should
        end before the session has waited for `LIVE_WAIT` of a chunk."""
        if cast("Group", group)[2]:
            return math.inf
        if clock.monotonic() >= self._live_until:
            self._live_seconds = math.inf
        return self._pace.most_samples(group, LIVE_WAIT * self._live_seconds)

    @property
    def catches_up(self) -> bool:
        """Whether a live session has fallen behind and is about to send more: a batch of jobs in between
        would let it fall back further, on a slow device for good."""
        return 0 < self._catching_up <= MOST_IN_A_ROW

    def _note_live(self, batch: Sequence[Utterance], answers: Sequence[Recognition | Failure]) -> None:
        steps = (utterance.request.step for utterance in batch)
        feeds = [step for step in steps if isinstance(step, LiveFeed)]
        if not feeds:
            return
        self._catching_up = self._catching_up + 1 if any(feed.more for feed in feeds) else 0
        for answer in answers:
            if isinstance(answer, Recognition) and isinstance(answer.output, LiveAnswer):
                self._live_seconds = min(self._live_seconds, answer.output.chunk_seconds)
                self._live_until = clock.monotonic() + LIVE_SECONDS

    def cost(self, item: QueuedUtterance) -> BatchCost:
        """The cost of an utterance; for a model that is not loaded yet it is unlimited, so that the utterance
        runs alone."""
        path, options, live = cast("Group", item.group)
        if live:  # feeds are not padded to one length, and their sessions are in memory anyway
            return BatchCost(1, 0)
        costs = []
        for each in models_of(path, options):
            model = self._model_cache.peek(each)
            if model is None:
                return BatchCost(item.length, sys.maxsize)
            costs.append(model.cost(item.length, options))
        return BatchCost(costs[0].frames, sum(each.bytes for each in costs))

    def holds(self, path: str) -> bool:
        """Whether this model is in memory."""
        return self._model_cache.peek(path) is not None

    def do(self, work: Work) -> None:
        """Do one piece of work."""
        if isinstance(work, Describe):
            self.describe(work)
        else:
            self.run(work)

    def _turns(self, inbox: Inbox) -> LiveTurns:
        """The live steps that may interrupt a batch of jobs."""
        return LiveTurns(
            lambda: inbox.live > 0 or clock.monotonic() < self._live_until,
            lambda: inbox.next_live(self) if inbox.live else None,
            self.do,
        )

    def describe(self, request: Describe) -> None:
        """Report a model's info, or the result of preparing it, as a `Described`."""
        try:
            model = self._recognizer(request.model, request.search)
            answer = model.info if request.request is None else model.prepare(request.request)
        except Exception as error:  # noqa: BLE001 - an error in a job's file is the job's
            self._reports.send(Described(request.ticket, _as_spool_error(error)))
        else:
            self._reports.send(Described(request.ticket, answer))

    def run(self, batch: Sequence[Utterance]) -> None:
        """Run one batch of one model and one set of options, and report it."""
        try:
            model = self._recognizer(batch[0].model, batch[0].search)
        except SpoolError as error:
            self._report((), [(utterance.ticket, error) for utterance in batch], 0, 0)
            return
        answers, busy_ns, lost_ns = self._attempt(model, batch)
        if len(batch) > 1 and isinstance(answers, SpoolError):
            self._report(batch, [], 0, lost_ns)
            for utterance in batch:
                self._run_alone(model, utterance)
            return
        if isinstance(answers, SpoolError):
            answers = [answers]
        results = [(u.ticket, answer) for u, answer in zip(batch, answers, strict=True)]
        self._report(batch, results, busy_ns, lost_ns)

    def _run_alone(self, model: Recognizer, utterance: Utterance) -> None:
        answers, busy_ns, lost_ns = self._attempt(model, [utterance])
        answer = answers if isinstance(answers, SpoolError) else answers[0]
        self._report([utterance], [(utterance.ticket, answer)], busy_ns, lost_ns)

    def _attempt(
        self, model: Recognizer, batch: Sequence[Utterance]
    ) -> tuple[list[Answer] | SpoolError, int, int]:
        """Answers (or the error that the batch raised), busy and lost nanoseconds."""
        self._unsettled.begin()
        self._reports.send(Started(tuple(utterance.ticket for utterance in batch)))
        failpoint("engine.started")
        audio = [self._view.read(utterance.slot, utterance.samples) for utterance in batch]
        live = batch[0].is_live
        turns = None if live or batch[0].alone or self._inbox is None else self._turns(self._inbox)
        if not live:
            self._catching_up = 0  # meanwhile sessions may fall behind again
        begun = clock.monotonic_ns()

        def measure_ns() -> int:
            return clock.monotonic_ns() - begun - (0 if turns is None else turns.ns)

        try:
            ahead = self._ahead.begin_batch([utterance.ticket for utterance in batch])
            requests = [utterance.request for utterance in batch]
            with giving_way_to(turns):
                if isinstance(model, WorksAhead) and any(made is not None for made in ahead):
                    recognitions = model.recognize(audio, requests, ahead)
                else:
                    recognitions = model.recognize(audio, requests)
            busy_ns = measure_ns()
            self._note_live(batch, recognitions)
            samples = max(utterance.samples for utterance in batch) * len(batch)
            self._pace.record((batch[0].model, batch[0].search, live), samples, busy_ns)
            if len(recognitions) != len(batch):
                raise EngineError(f"The model answered {len(recognitions)} of {len(batch)} utterances.")
        except Exception as error:  # noqa: BLE001 - an error of the model is the utterance's, not the process's
            return _as_spool_error(error), 0, measure_ns()
        finally:
            self._ahead.end_batch()
            self.worked_ns += measure_ns()
        failpoint("engine.computed")
        shares = split_exactly(busy_ns, [answer.frames for answer in recognitions])
        pairs = list(zip(recognitions, shares, strict=True))
        lost_ns = sum(share for answer, share in pairs if isinstance(answer, Failure))
        answers = [_with_cost(answer, share, len(batch), model.info) for answer, share in pairs]
        return answers, busy_ns - lost_ns, lost_ns

    def _recognizer(self, path: str, options: SearchOptions | None) -> Recognizer:
        """The model, with the rescoring one if the options name it, which is loaded last; both stay."""
        model = self._model(path)
        if options is None or options.reader is None:
            return model
        return model.read_by(self._model(options.reader, beside=path))

    def _model(self, path: str, beside: str | None = None) -> Recognizer:
        model = self._model_cache.get(path)
        if model is not None:
            return model
        self._let_go(self._model_cache.make_room(path, beside))  # first: two models may not fit at once
        self._handover.wait()  # the engine of a killed worker may still hold its models
        self._reports.send(Loading(path))
        failpoint("engine.loading")
        begun = clock.monotonic_ns()
        try:
            model = self._check_quality(path, self._loader(path))
        except SpoolError:
            raise
        except Exception as error:
            raise ModelUnreadable(f"The model {path} cannot be loaded: {_one_line(error)}") from error
        finally:
            info = None if model is None else model.info
            self._reports.send(Loaded(path, clock.monotonic_ns() - begun, info))
        self._ahead.serve(path, model.front if isinstance(model, WorksAhead) else None)
        self._let_go(self._model_cache.take_in(path, model, model.info.size, beside))
        return model

    def _check_quality(self, path: str, model: Recognizer) -> Recognizer:
        """The model, unless its weights are quantised and their quality was not measured here, or not good
        enough."""
        bits = model.info.bits
        if bits is not None and self._measured is not None and self._measured.get(path) != bits:
            raise QualityUnknown(
                f"The weights of {path} are quantised with {bits} bits, and no measurement on this machine "
                "says that they are good enough. Run spool-worker confirm --quality --model NAME --against "
                "MODEL, where MODEL is what they were made from, and start the worker again."
            )
        return model

    def _let_go(self, models: tuple[str, ...]) -> None:
        for model in models:
            self._ahead.serve(model, None)
        if models:
            self._reports.send(Unloaded(models))

    def _report(
        self,
        batch: Sequence[Utterance],
        results: Sequence[tuple[int, Answer]],
        busy_ns: int,
        lost_ns: int,
    ) -> None:
        tickets = tuple(utterance.ticket for utterance in batch)
        self._unsettled.end(batch, results)
        self._reports.send(Finished(tuple(results), busy_ns, lost_ns, tickets))
        failpoint("engine.reported")


def _with_cost(answer: Recognition | Failure, engine_ns: int, batch: int, info: ModelInfo) -> Answer:
    if isinstance(answer, Failure):
        return answer.error
    return replace(answer, engine_ns=engine_ns, batch_size=batch, makers=answer.makers or info.makers)


def _as_spool_error(error: Exception) -> SpoolError:
    if isinstance(error, SpoolError):
        return error
    return EngineError(f"The model failed on this utterance: {_one_line(error)}")


def _one_line(error: Exception) -> str:
    return f"{type(error).__name__}: {' '.join(str(error).split())}"[:500]
