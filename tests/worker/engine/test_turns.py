"""Steps of live sessions between the layers of a batch of jobs: the same bits, each on its own bill, and a
fault on one side is not the other's."""

from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future
from pathlib import Path
from typing import Any, cast

import mlx.core as mx
import numpy as np
import pytest
import soundfile

from spool.domain import Recognition
from spool.errors import SpoolError
from tests.worker.models.golden import model as golden_model
from tests.worker.models.golden import speech
from tests.worker.models.whisper.fixtures import tiny_model
from tests.worker.models.whisper.tiny import tone
from worker.engine import (
    AudioView,
    BatchRunner,
    EngineOptions,
    Finished,
    Inbox,
    LiveSteps,
    Loaded,
    PendingRequests,
    Report,
    Reports,
    Started,
    StepBrokeError,
    Utterance,
    WorkAhead,
    decode_utterances,
)
from worker.live import LiveAnswer, LiveFeed
from worker.models import (
    BatchCost,
    DecodeRequest,
    ModelInfo,
    SearchOptions,
    SpeechModel,
    give_way,
    giving_way_to,
    load_model,
    load_wenet,
)
from worker.models.base import Encoded

GOLDEN = Path(__file__).parents[2] / "golden"
STREAMING = GOLDEN / "streaming"
LIVE = SearchOptions(head="rnnt", att_context=(70, 1))


class Sessions:
    """Two live sessions that take a step at every place where a batch gives way."""

    def __init__(self, model: SpeechModel) -> None:
        self._steps, self._audio = LiveSteps(model), soundfile.read(STREAMING / "1.flac", dtype="float32")[0]
        self.turns = 0
        self.may_come = True

    def take_turn(self) -> None:
        at = 4000 * self.turns % 64_000  # the sessions begin anew at 4 s
        with giving_way_to(None):
            feeds = [DecodeRequest(step=LiveFeed(name, at), search=LIVE) for name in "ab"]
            answers = self._steps.recognize(
                [self._audio[at : at + 4000]] * 2,
                [each.model_copy(update={"search": LIVE}) for each in feeds],
            )
        assert all(isinstance(each, Recognition) for each in answers)
        self.turns += 1


def whisper() -> SpeechModel:
    return cast("SpeechModel", tiny_model())


FAMILIES: dict[str, tuple[Callable[[], Any], SearchOptions]] = {
    "FastConformer, TDT, greedy": (lambda: golden_model("tdt"), SearchOptions(head="tdt")),
    "FastConformer, RNNT, beam": (
        lambda: golden_model("rnnt"),
        SearchOptions(decoder="beam", beam=4, head="rnnt", nbest=4),
    ),
    "the sessions' own model": (lambda: load_model(str(STREAMING / "model.nemo")), LIVE),
    "U2++, rescored": (
        lambda: load_wenet(GOLDEN / "wenet" / "rnnt", "rnnt"),
        SearchOptions(decoder="rescore", beam=4, nbest=4),
    ),
    "Whisper, beam": (whisper, SearchOptions(decoder="beam", beam=2, nbest=2)),
}


@pytest.mark.slow
@pytest.mark.parametrize(
    "family",
    [pytest.param(each, marks=pytest.mark.long) if each == "Whisper, beam" else each for each in FAMILIES],
)
def test_a_batch_gives_the_same_bits_however_often_it_is_interrupted(family: str) -> None:
    load, options = FAMILIES[family]
    model = load()
    batch = [tone(2, 1)] if family.startswith("Whisper") else list(speech()[:2])
    asks = [DecodeRequest()] * len(batch)
    alone = decode_utterances(model, batch, options, asks)
    sessions = Sessions(model if model.capabilities.streams else load_model(str(STREAMING / "model.nemo")))
    with giving_way_to(sessions):
        beside = decode_utterances(model, batch, options, asks)
        again = model.encode(batch)
    assert sessions.turns > 2
    for one, other in zip(alone, beside, strict=True):
        assert one.hypotheses == other.hypotheses
    for once, interrupted in zip(_arrays(model.encode(batch)), _arrays(again), strict=True):
        assert once.tobytes() == interrupted.tobytes()


def _arrays(encoded: Any) -> Iterator[np.ndarray]:
    for each in encoded if isinstance(encoded, list) else [encoded]:
        batch = cast("Encoded", getattr(each, "batch", each))
        yield np.array(batch.frames.astype(mx.float32))


def test_nothing_is_evaluated_while_nobody_may_come() -> None:
    others = Sessions(load_model(str(STREAMING / "model.nemo")))
    others.may_come = False
    with giving_way_to(others):
        give_way(object())  # no array, which `mx.eval` would say
    give_way(object())
    assert others.turns == 0


# --- bills and faults, on a clock of our own --------------------------------------------------------------


class Clock:
    def __init__(self) -> None:
        self.ns = 0

    def __call__(self) -> int:
        return self.ns


class Layered:
    """A model whose batch of jobs takes 10 + 5, and a step of sessions 3 of the clock."""

    info = ModelInfo("layered", "sha")
    fault: Exception | None = None
    job_fault: Exception | None = None

    def __init__(self, clock: Clock) -> None:
        self._clock = clock

    def cost(self, samples: int, options: SearchOptions) -> BatchCost:
        return BatchCost(samples, 0)

    def recognize(self, utterances: Sequence[Any], requests: Sequence[DecodeRequest]) -> list[Recognition]:
        if isinstance(requests[0].step, LiveFeed):
            give_way(object())  # nobody interrupts an interruption
            self._clock.ns += 3
            if self.fault is not None:
                raise self.fault
            return [Recognition((), (), 1, output=LiveAnswer((), 1.12)) for _ in requests]
        self._clock.ns += 10
        give_way()
        self._clock.ns += 5
        if self.job_fault is not None:
            raise self.job_fault
        return [Recognition((), (), 1) for _ in requests]


class Line:
    """The child's end of the pipe, and what went into it."""

    def __init__(self) -> None:
        self.said: list[Report] = []

    def send(self, report: Report) -> None:
        self.said.append(report)


class Desk:
    """A device with one job on its way and sessions that wait."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.clock, self.line = Clock(), Line()
        monkeypatch.setattr("time.monotonic_ns", self.clock)
        self.model = Layered(self.clock)
        reports, ahead, options = (
            Reports(cast("Any", self.line)),
            WorkAhead(lambda _: np.zeros(1, np.float32)),
            EngineOptions(),
        )
        self.inbox = Inbox(options, reports, ahead)
        view = cast("AudioView", self)
        self.device = BatchRunner(
            reports, view, lambda _: cast("Any", self.model), options, ahead, self.inbox
        )
        self._tickets = 0

    def read(self, slot: int, samples: int) -> np.ndarray:
        return np.zeros(samples, np.float32)

    def utterance(
        self, job: str, path: str = "model", *, live: bool = False, alone: bool = False
    ) -> Utterance:
        self._tickets += 1
        request = DecodeRequest(step=LiveFeed(job, 0)) if live else DecodeRequest()
        return Utterance(self._tickets, job, 0, 100, path, request, alone=alone)

    def run(self, *, waiting: Sequence[Utterance], alone: bool = False) -> list[Report]:
        """What was said while a job ran and these waited."""
        job = self.utterance("job", alone=alone)
        for each in waiting:
            self.inbox._take_in(each)
        self.device.run([job])
        said: list[Report] = [report for report in self.line.said if not isinstance(report, Loaded)]
        return said[1:]


@pytest.fixture
def desk(monkeypatch: pytest.MonkeyPatch) -> Desk:
    return Desk(monkeypatch)


def shape(reports: Sequence[Report]) -> list[tuple[str, tuple[int, ...]]]:
    return [
        (type(each).__name__, each.tickets if isinstance(each, Started) else each.batch)
        for each in reports
        if isinstance(each, Started | Finished)
    ]


def test_a_step_runs_within_a_batch_and_neither_pays_for_the_other(desk: Desk) -> None:
    sessions = [desk.utterance(name, live=True) for name in ("a", "b")]
    said = desk.run(waiting=sessions)
    assert shape(said) == [("Started", (3,)), ("Started", (1, 2)), ("Finished", (1, 2)), ("Finished", (3,))]
    steps, job = (each for each in said if isinstance(each, Finished))
    assert (steps.busy_ns, job.busy_ns) == (3, 15)
    bills = [answer.engine_ns for _, answer in job.results if isinstance(answer, Recognition)]
    assert bills == [15]
    assert desk.device.worked_ns == 18
    assert desk.inbox.live == 0


def test_a_step_that_fails_costs_the_batch_nothing(desk: Desk) -> None:
    desk.model.fault = RuntimeError("no number")
    steps, job = (
        each for each in desk.run(waiting=[desk.utterance("a", live=True)]) if isinstance(each, Finished)
    )
    assert [type(answer) for _, answer in job.results] == [Recognition]
    assert (job.busy_ns, job.lost_ns) == (15, 0)
    assert [isinstance(answer, SpoolError) for _, answer in steps.results] == [True]
    assert (steps.busy_ns, steps.lost_ns) == (0, 3)


def test_a_batch_that_fails_behind_a_step_takes_nothing_from_it(desk: Desk) -> None:
    desk.model.job_fault = RuntimeError("no number")
    steps, job = (
        each for each in desk.run(waiting=[desk.utterance("a", live=True)]) if isinstance(each, Finished)
    )
    assert [type(answer) for _, answer in steps.results] == [Recognition]
    assert (steps.busy_ns, job.busy_ns, job.lost_ns) == (3, 0, 15)


def test_what_would_end_the_process_is_not_taken_for_the_jobs_fault(
    desk: Desk, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(*_: object) -> None:
        raise RuntimeError("not an answer of a model")

    monkeypatch.setattr(desk.device, "do", broken)
    with pytest.raises(StepBrokeError):
        desk.run(waiting=[desk.utterance("a", live=True)])


def test_a_model_that_is_not_in_memory_and_a_suspect_do_not_interrupt(desk: Desk) -> None:
    other, suspect = desk.utterance("a", "other", live=True), desk.utterance("b", live=True, alone=True)
    said = desk.run(waiting=[other, suspect])
    assert shape(said) == [("Started", (3,)), ("Finished", (3,))]
    assert desk.inbox.live == 2


def test_an_utterance_that_is_to_run_alone_is_not_interrupted(desk: Desk) -> None:
    said = desk.run(waiting=[desk.utterance("a", live=True)], alone=True)
    assert shape(said) == [("Started", (2,)), ("Finished", (2,))]


def test_only_the_innermost_batch_is_suspected_of_ending_the_process() -> None:
    pending = PendingRequests(lambda _: None, lambda _: 100)
    for ticket in (1, 2):
        answer: Future[Recognition] = Future()
        pending.add(Utterance(ticket, f"job{ticket}", ticket, 100, "m"), answer)

    def suspects() -> list[int]:
        return [each.ticket for each in pending.requests() if isinstance(each, Utterance) and each.alone]

    pending.take(Started((1,)))
    pending.take(Started((2,)))
    pending.take_death("signal 9")
    assert suspects() == [2]

    pending.take(Started((1,)))
    pending.take(Started((2,)))
    pending.take(Finished((), 0, 3, (2,)))  # the step failed; the batch around it goes on
    pending.take_death("signal 9")
    assert suspects() == [1, 2]
