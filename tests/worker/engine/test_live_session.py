"""Live sessions through the engine's process: many at once, beside jobs, and over the death of the child."""

import os
import signal
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest

from ops.testbed.waiting import until
from spool import clock
from spool.errors import EngineFull, InvalidRequest, JobCancelled
from tests.golden.streaming.golden import GOLDEN, Samples, audio
from tests.worker.engine.gated_models import LOADER
from worker.engine import UNMEASURED_SESSIONS, Engine, EngineOptions, EngineSession, LiveRequest, LiveSessions
from worker.live import End, EndpointRules, Event, Final, LiveGroup, LiveOptions, Partial
from worker.models import DecodeRequest, SearchOptions, load_model

pytestmark = pytest.mark.integration
MODEL = str(GOLDEN / "model.nemo")
SEARCH = SearchOptions(head="rnnt", att_context=(70, 1))
RULES = EndpointRules(silence=0.24, longest=1.0)
REQUEST = LiveRequest(MODEL, SEARCH, RULES)
BLOCK = 4000


@pytest.fixture(scope="module")
def engine() -> Iterator[Engine]:
    engine = Engine(EngineOptions(slots=8, slot_samples=12 * 16_000, device="cpu")).start()
    yield engine
    engine.close()


def expected(samples: Samples) -> list[Event]:
    """What a session in this process says of the same audio, heard alone."""
    group = LiveGroup(load_model(MODEL), LiveOptions(SEARCH, RULES))
    session = group.open()
    session.push(samples)
    session.finish()
    events: list[Event] = []
    while group.is_ready:
        events += [event for result in group.step() for event in result.events]
    return events


def hear(session: EngineSession, samples: Samples) -> list[Event]:
    events: list[Event] = []
    for first in range(0, len(samples), BLOCK):
        events += session.push(samples[first : first + BLOCK], last=first + BLOCK >= len(samples))
    return events


def test_sessions_beside_jobs_say_what_they_say_alone(engine: Engine) -> None:
    sessions, recordings = LiveSessions(engine), [audio(1), audio(2)]
    opened = [sessions.open(REQUEST) for _ in recordings]
    busy_before, lost_before = engine.busy_ns, engine.unbilled_ns
    job = engine.submit("job", audio(2), MODEL, DecodeRequest(search=SearchOptions(head="rnnt")))
    with ThreadPoolExecutor(2) as pool:
        heard = list(pool.map(hear, opened, recordings))
    for events, samples in zip(heard, recordings, strict=True):
        assert events == expected(samples)
        assert isinstance(events[-1], End)
        assert any(isinstance(event, Partial) for event in events)
        assert any(isinstance(event, Final) for event in events)
    # Every nanosecond of the child is on the bill of a session or of the job (law 5).
    billed = sum(session.engine_ns for session in opened) + job.result(60).engine_ns
    assert engine.busy_ns - busy_before == billed
    assert engine.unbilled_ns == lost_before
    assert all(session.rebuilds == 0 for session in opened)


def test_a_session_does_not_wait_for_the_batch_on_the_device(tmp_path: Path) -> None:
    gate, samples = tmp_path / "gate", audio(1)
    engine = Engine(EngineOptions(slots=8, slot_samples=12 * 16_000, device="cpu", loader=LOADER)).start()
    try:
        engine.describe(MODEL).result(60)
        job = engine.submit(
            "job", audio(2), f"{gate}|{MODEL}", DecodeRequest(search=SearchOptions(head="rnnt"))
        )
        until(gate.with_suffix(".reached").exists, "a batch at the gate")
        session = LiveSessions(engine).open(REQUEST)
        assert hear(session, samples) == expected(samples)
        assert not job.done()
        gate.touch()
        # What the session took is on its bill and on no other (law 5).
        billed = job.result(60).engine_ns + session.engine_ns
        assert engine.busy_ns == billed
        assert session.rebuilds == 0
    finally:
        gate.touch()
        engine.close()


def test_a_session_that_is_behind_catches_up_before_jobs_go_on(engine: Engine) -> None:
    session = EngineSession(engine, REQUEST)
    session.push(audio(1)[:BLOCK])
    alone = [
        SearchOptions(decoder="beam", beam=beam, head="rnnt") for beam in range(1, 7)
    ]  # no two share a batch
    jobs = [engine.submit(f"job-{one.beam}", audio(2), MODEL, DecodeRequest(search=one)) for one in alone]
    session.push(np.tile(audio(1), 7)[: 30 * 16_000])  # six feeds
    done = sum(job.done() for job in jobs)
    # What was on the device, what came behind the last feed, and what a busy machine lets in between two.
    assert done < len(jobs)
    assert all(job.result(60).hypotheses for job in jobs)
    session.close()


def test_a_killed_child_loses_no_final(engine: Engine) -> None:
    samples = audio(1)
    session = EngineSession(engine, REQUEST)
    events: list[Event] = []
    middle = len(samples) // 2 // BLOCK * BLOCK
    for first in range(0, middle, BLOCK):
        events += session.push(samples[first : first + BLOCK])
    pid = engine.child_pid
    assert pid is not None
    os.kill(pid, signal.SIGKILL)
    until(lambda: engine.child_pid not in (None, pid), "a new child")
    for first in range(middle, len(samples), BLOCK):
        events += session.push(samples[first : first + BLOCK], last=first + BLOCK >= len(samples))
    assert events == expected(samples)
    assert session.rebuilds == 1
    assert session.wasted_ns > 0


def test_a_session_that_ended_takes_no_audio(engine: Engine) -> None:
    session = EngineSession(engine, REQUEST)
    session.push(audio(1)[:BLOCK])
    session.close()
    with pytest.raises(InvalidRequest, match="has ended"):
        session.push(audio(1)[:BLOCK])


def test_a_cancelled_session_does_not_wait(engine: Engine) -> None:
    cancel = clock.Event()
    session = EngineSession(engine, REQUEST, cancel)
    session.push(audio(1)[:BLOCK])
    cancel.set()
    with pytest.raises(JobCancelled):
        session.push(audio(1)[:BLOCK])
    assert session.has_ended


def test_more_sessions_than_the_engine_can_keep_up_with_are_refused(engine: Engine) -> None:
    few = LiveSessions(engine, most=1)
    first = few.open(REQUEST)
    with pytest.raises(EngineFull, match="1 live sessions, as many as it takes"):
        few.open(REQUEST)
    first.close()
    few.open(REQUEST).close()

    unknown = LiveSessions(engine)
    opened = [unknown.open(REQUEST) for _ in range(UNMEASURED_SESSIONS)]
    with pytest.raises(EngineFull, match="not known yet"):
        unknown.open(REQUEST)
    for session in opened:
        session.close()

    loaded = LiveSessions(engine, share=1e-9)
    first = loaded.open(REQUEST)
    assert loaded.load == 0
    first.push(audio(1)[: 3 * 16_000])
    assert loaded.load == first.cost
    with pytest.raises(EngineFull, match="would take it above"):
        loaded.open(REQUEST)
    first.close()
    # One is always taken, and what the last one cost is known for the next.
    assert loaded.load == 0
    loaded.open(REQUEST)
    with pytest.raises(EngineFull, match="would take it above"):
        loaded.open(REQUEST)


def test_what_the_model_cannot_do_is_refused(engine: Engine) -> None:
    session = EngineSession(engine, LiveRequest(MODEL, SearchOptions(head="rnnt", att_context=(70, 5))))
    with pytest.raises(InvalidRequest, match=r"70, ?5"):
        session.push(audio(1)[:BLOCK])
    assert session.has_ended
