"""Lattices and alternatives of a job, from its options to its transcript, by the demo model."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from ops.testbed.fake_models import RATE
from ops.testbed.jobs import WorkerHarness, running_engine
from ops.testbed.waiting import until
from spool.audit import audit
from spool.domain import JobState, Transcript
from spool.formats import render
from tests.worker.engine.gated_models import LOADER
from tests.worker.engine.test_requests import DEMO, speech
from worker.engine import Engine

pytestmark = pytest.mark.integration

ASKED: dict[str, Any] = {"decoder": "beam", "beam": 4, "alternatives": 3, "lattice": 8.0}


@pytest.fixture(scope="module")
def engine() -> Iterator[Engine]:
    with running_engine(slots=8, utterances=1, loader=LOADER, padding=0.9) as engine:
        yield engine


@pytest.fixture
def worker_settings(gate: Path) -> dict[str, Any]:
    return {"models": {"demo-tdt": DEMO, "demo-gated": f"{gate}|{DEMO}"}, "default_model": "demo-tdt"}


def recording(harness: WorkerHarness) -> Path:
    """Words with long pauses between, so that there are several chunks."""
    words = speech()[0]
    pause = np.zeros(26 * RATE, np.float32)
    return harness.record("words.wav", np.concatenate([words, pause, words, pause, words]))


def told(harness: WorkerHarness, job_id: str) -> Transcript:
    job = harness.job(job_id)
    assert job.state is JobState.DONE, job.error_message
    assert job.transcript_key is not None
    return Transcript.model_validate_json(harness.read(job.transcript_key))


def test_a_job_has_its_chunks_lattices_in_order_and_only_if_asked(harness: WorkerHarness) -> None:
    path = recording(harness)
    asked, plain = (
        harness.submit(path, "demo-tdt", **ASKED),
        harness.submit(path, "demo-tdt", decoder="beam", beam=4),
    )
    assert harness.run(asked) == harness.run(plain) == "done"

    full, bare = told(harness, asked), told(harness, plain)

    spoken = [chunk for chunk in harness.chunks(asked) if chunk.heard.lattice]
    assert len(spoken) >= 2
    assert [chunk.heard.lattice for chunk in spoken] == list(full.lattice)
    assert [lattice.start for lattice in full.lattice] == sorted(lattice.start for lattice in full.lattice)
    for lattice, chunk in zip(full.lattice, spoken, strict=True):
        assert (lattice.start, lattice.end) == pytest.approx(
            (chunk.span.start / RATE, chunk.span.end / RATE), abs=1e-3
        )
        assert {word.text for word in chunk.heard.words} <= {arc.word for arc in lattice.arcs}
        assert all(lattice.start <= arc.start <= arc.end <= lattice.end for arc in lattice.arcs)
    assert all(len(word.alternatives) <= 3 for word in full.words)
    assert bare.lattice == ()
    assert [w.model_copy(update={"alternatives": ()}) for w in full.words] == list(bare.words)
    assert not any(chunk.heard.lattice for chunk in harness.chunks(plain))
    assert render(full, "kaldi").count("\n\n") == len(full.lattice)
    assert audit(harness.db, harness.objects).breaches == []


def test_a_job_that_goes_on_has_the_lattices_of_its_first_attempt(harness: WorkerHarness, gate: Path) -> None:
    path = recording(harness)
    broken = harness.submit(path, "demo-gated", **ASKED)
    running = harness.start(broken)
    until(gate.with_suffix(".reached").exists, "a batch at the gate")
    harness.draining.set()
    gate.touch()
    assert running.end() == "handed back"
    first = [chunk for chunk in harness.chunks(broken) if chunk.heard.lattice]
    assert first
    harness.draining.clear()
    assert harness.run(broken) == "done"
    whole = harness.submit(path, "demo-gated", **ASKED)
    assert harness.run(whole) == "done"

    assert told(harness, broken).lattice == told(harness, whole).lattice
    assert told(harness, broken).words == told(harness, whole).words
    assert set(first) <= set(harness.chunks(broken))


def test_greedy_has_no_lattice(harness: WorkerHarness) -> None:
    with pytest.raises(ValueError, match="does not apply to greedy"):
        harness.submit(recording(harness), decoder="greedy", lattice=5.0)
