"""The report of what a machine confirms: every outcome in it, and steps that notice what is wrong."""

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import mlx.core as mx
import pytest

from kernels.contracts import CASES, TOLERANCE, run_case
from ops.testbed.fake_models import LOADER
from spool.settings import Settings
from worker.diagnostics import Result, Step, StepOutcome, new_report, write_report
from worker.diagnostics.confirm import engine
from worker.diagnostics.confirm import steps as confirm_steps
from worker.diagnostics.confirm.report import confirm
from worker.engine import engine_options

SILU = next(case for case in CASES if case.name == "silu")


@pytest.fixture
def fake_engine(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(engine, "engine_options", lambda settings: engine_options(settings, LOADER))


def test_every_outcome_is_in_the_report(tmp_path: Path) -> None:
    def breaks() -> StepOutcome:
        raise RuntimeError("no such | thing")

    report = new_report()
    steps = [
        Step("one", "all well", lambda: StepOutcome("ok", "all well", ("a line",))),
        Step("two", "a Mac", lambda: StepOutcome("not possible here", "no Mac")),
    ]
    told = list(confirm(report, steps))
    assert [type(each) for each in told] == [Step, Result, Step, Result]
    assert not report.differs
    list(confirm(report, [Step("three", "it goes on", breaks)]))
    assert report.differs
    as_json, as_text = write_report(report, tmp_path / "sent")
    found = json.loads(as_json.read_text())["results"]
    assert [(line["name"], line["verdict"]) for line in found] == [
        ("one", "ok"),
        ("two", "not possible here"),
        ("three", "differs"),
    ]
    text = as_text.read_text()
    assert "| three | it goes on | RuntimeError: no such \\| thing | **differs** |" in text
    assert "## one\n\n    a line\n" in text


def test_a_contract_notices_a_kernel_that_is_wrong() -> None:
    distance, same = run_case(SILU, "float32", "cpu")
    assert distance <= TOLERANCE["float32"]
    assert same
    wrong = replace(SILU, run=lambda x: SILU.run(x) + 0.001)
    assert run_case(wrong, "float32", "cpu")[0] > TOLERANCE["float32"]
    leaks = replace(SILU, run=lambda x: SILU.run(x) + 1e-9 * len(x) * mx.ones_like(x))
    assert not run_case(leaks, "float32", "cpu")[1], "the batch shows in its first utterance"


@pytest.mark.integration
def test_a_child_that_dies_is_replaced(fake_engine: None, make_settings: Callable[..., Settings]) -> None:
    outcome = engine.crashes(make_settings(), "plain")
    assert outcome.verdict == "ok", outcome
    assert outcome.actual == "SIGKILL: 1 restarts, the same words; SIGABRT: 1 restarts, the same words"


@pytest.mark.integration
def test_memory_is_watched_for_as_long_as_asked(
    fake_engine: None, make_settings: Callable[..., Settings]
) -> None:
    outcome = engine.memory(make_settings(), "sleep=0.01", 0.01)
    assert "rounds in 0.01 min" in outcome.actual
    assert len(outcome.details) >= 2


@pytest.mark.integration
@pytest.mark.parametrize(("step", "verdict"), [(1 << 29, "differs"), (1 << 10, "ok")])
def test_memory_that_grows_differs(
    fake_engine: None,
    make_settings: Callable[..., Settings],
    monkeypatch: pytest.MonkeyPatch,
    step: int,
    verdict: str,
) -> None:
    sizes = iter(range(1 << 30, 1 << 50, step))
    monkeypatch.setattr(engine, "resident_bytes", lambda _: next(sizes))
    monkeypatch.setattr(engine, "SETTLING_MINUTES", 0.0)
    assert engine.memory(make_settings(), "plain", 0.005).verdict == verdict


@pytest.mark.integration
def test_a_cache_that_fills_in_a_short_time_says_nothing(
    fake_engine: None, make_settings: Callable[..., Settings], monkeypatch: pytest.MonkeyPatch
) -> None:
    sizes = iter([1 << 29, *[3 << 29] * 100])
    monkeypatch.setattr(engine, "resident_bytes", lambda _: next(sizes))
    outcome = engine.memory(make_settings(), "plain", 0.005)
    assert outcome.verdict == "not possible here"
    assert "too short to tell" in outcome.actual


def test_words_are_held_against_the_stored_ones(monkeypatch: pytest.MonkeyPatch) -> None:
    stored = json.loads(confirm_steps.WORDS.read_text())
    manifest = confirm_steps.SAMPLES / "manifest.jsonl"
    listed = [json.loads(line)["file"] for line in manifest.read_text().splitlines()]
    assert list(stored) == listed
    monkeypatch.setattr(confirm_steps, "hear", lambda model, names: stored)
    assert confirm_steps.samples("demo-tdt").verdict == "ok"
    other = {**stored, listed[0]: "something else"}
    monkeypatch.setattr(confirm_steps, "hear", lambda model, names: other)
    outcome = confirm_steps.samples("demo-tdt")
    assert outcome.verdict == "differs"
    assert "something else" in outcome.details[0]


@pytest.mark.integration
def test_the_stored_words_are_those_of_the_stored_model() -> None:
    outcome = confirm_steps.samples(str(confirm_steps.ROOT / "models/demo"))
    assert outcome.verdict == "ok", outcome
    assert outcome.details == ()


def test_what_the_check_finds_is_an_outcome(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    from worker.diagnostics import Finding

    findings = [
        Finding("disk", "fail", "full", "Make room."),
        Finding("database", "fail", "away", "Start it."),
    ]
    monkeypatch.setattr(confirm_steps, "check_machine", lambda settings: iter(findings))
    outcome = confirm_steps.machine(Settings(home=tmp_path))
    assert outcome.verdict == "differs"
    assert outcome.actual.endswith("failing: disk"), "another machine's database is not this one's fault"
