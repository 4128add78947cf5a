"""The steps for the machine, its kernels, the golden files, the samples and its speed.

Everything that touches the device runs in a separate process.
"""

import json
import subprocess
import sys
from pathlib import Path

from spool.errors import InvalidRequest
from spool.planning.chips import chip_named
from spool.planning.model_size import read_shape
from spool.planning.roofline import Batch, cap
from spool.settings import Settings
from spool.wer import WordErrors, word_errors
from worker.diagnostics.check import check_machine
from worker.diagnostics.confirm.report import StepOutcome
from worker.machine.hardware import this_machine

ROOT = Path(__file__).resolve().parents[3]
SAMPLES = ROOT / "samples" / "demo-tdt"
WORDS = SAMPLES / "words.json"
PARITY = ("tests/worker/models/test_parity.py", "tests/worker/decode/test_golden_search.py")
STEP_SECONDS = 1800
SERVERS = frozenset({"database", "broker", "clock", "object store"})
"""Findings about other machines, which do not count against this one."""
MOST_WER = 0.005
"""bfloat16 instead of float32 may change one word in two hundred."""
LEAST_SHARE = 0.05
"""Share of the roofline; no known engine is below it."""


def machine(settings: Settings) -> StepOutcome:
    """The findings of `spool-worker check`, and whether there is an Apple GPU."""
    findings = list(check_machine(settings))
    details = tuple(f"{finding.level:<4}  {finding.name:<14} {finding.text}" for finding in findings)
    failed = [each.name for each in findings if each.level == "fail" and each.name not in SERVERS]
    summary = f"{this_machine()}; failing: {', '.join(failed) or 'nothing'}"
    if failed:
        return StepOutcome("differs", summary, details)
    return StepOutcome("ok" if this_machine().apple_gpu else "not possible here", summary, details)


def kernels() -> StepOutcome:
    """Every kernel against its reference, by its own contract, in float32 and bfloat16."""
    process = _run(sys.executable, "-m", "worker.diagnostics.confirm.kernels")
    lines = [json.loads(line) for line in process.stdout.splitlines() if line.startswith("{")]
    if not lines:
        return StepOutcome("differs", f"the process ended with {process.returncode}", _tail(process.stderr))
    backend, results = lines[0]["backend"], lines[1:]
    if backend == "reference":
        return StepOutcome("not possible here", "no GPU and no C++ compiler, so plain MLX is used", ())
    wrong = [line for line in results if not line.get("ok")]
    complete = len(results) == 2 * lines[0]["cases"]
    text = f"{len(results) - len(wrong)} of {2 * lines[0]['cases']} contracts met on the backend {backend}"
    if not complete:
        text += f"; the process ended with {process.returncode} after {results[-1:] or 'nothing'}"
    worst = sorted(results, key=lambda line: -line.get("distance", 1e9))[:5]
    details = tuple(json.dumps(line) for line in (wrong or worst))
    return StepOutcome("ok" if complete and not wrong else "differs", text, details)


def parity() -> StepOutcome:
    """The tests that compare MLX on this device with NeMo's stored results."""
    if not (ROOT / PARITY[0]).exists():
        return StepOutcome("not possible here", "no source checkout, so no golden files")
    if _run(sys.executable, "-c", "import pytest, hypothesis").returncode:
        return StepOutcome("not possible here", "this environment has no pytest: make env-dev")
    options = ("-q", "-n", "0", "-p", "no:cacheprovider", "-o", "timeout=0")
    process = _run(sys.executable, "-m", "pytest", *options, *PARITY)
    last = (process.stdout.strip().splitlines() or ["no output"])[-1]
    return StepOutcome(
        "ok" if process.returncode == 0 else "differs",
        last,
        _tail(process.stdout, 60) if process.returncode else (),
    )


def samples(model: str) -> StepOutcome:
    """Compare the words of the samples with the demo model's stored words."""
    if not WORDS.exists():
        return StepOutcome("not possible here", "no source checkout, so no samples")
    stored: dict[str, str] = json.loads(WORDS.read_text(encoding="utf-8"))
    heard = hear(model, list(stored))
    total = WordErrors(0, 0)
    details = []
    for name, words in stored.items():
        errors = word_errors(words, heard.get(name, ""))
        total += errors
        if errors.edits:
            details.append(f"{name}: stored {words!r}, heard {heard.get(name, '')!r}")
    text = f"{total.edits} of {total.words} words differ ({100 * total.rate:.2f} %)"
    return StepOutcome("ok" if total.rate <= MOST_WER else "differs", text, tuple(details))


def hear(model: str, names: list[str]) -> dict[str, str]:
    """The words of samples by name. Raises InvalidRequest if the command fails."""
    files = [str(SAMPLES / name) for name in names]
    command = ("-m", "worker.cli.main", "transcribe", *files, "--model", model, "--format", "json")
    process = _run(sys.executable, *command)
    if process.returncode:
        raise InvalidRequest(
            f"spool-worker transcribe ended with {process.returncode}: {process.stderr[-300:]}"
        )
    output = json.loads(process.stdout)
    answers = output if isinstance(output, list) else [output]
    texts = [" ".join(word["text"] for word in answer["words"]) for answer in answers]
    return dict(zip(names, texts, strict=True))


def speed(model: str, rounds: int) -> StepOutcome:
    """RTFx over lengths, batch sizes and beams, as a share of the chip's roofline."""
    command = (
        "-m",
        "worker.cli.main",
        "bench",
        "--calibrate",
        "--json",
        "--rounds",
        str(rounds),
        "--model",
        model,
    )
    process = _run(sys.executable, *command)
    if process.returncode:
        return StepOutcome("differs", f"the bench ended with {process.returncode}", _tail(process.stderr))
    report = json.loads(process.stdout)
    hardware = this_machine()
    chip = chip_named(hardware.chip, hardware.gpu_cores) if hardware.apple_gpu else None
    shape, details, shares, best = read_shape(model), [], [], 0.0
    for run in report["runs"]:
        batch = Batch(run["seconds"], run["utterances"], run["decoder"], run["beam"])
        rtfx = batch.audio_seconds / run["engine_seconds"]
        best = max(best, rtfx)
        line = f"{batch.utterances:3.0f} x {batch.seconds:2.0f} s, {batch.decoder} {batch.hypotheses}"
        line += f": RTFx {rtfx:8.1f}"
        if chip is not None:
            shares.append(rtfx / cap(shape, chip, batch))
            line += f", {100 * shares[-1]:5.1f} % of {chip.name}'s roofline"
        details.append(line)
    text = f"RTFx up to {best:.1f} on {report['device'] or 'its device'}"
    if not shares:
        return StepOutcome(
            "not possible here", f"{text}; the roofline of {hardware.chip} is unknown", tuple(details)
        )
    text += f", {100 * min(shares):.0f} to {100 * max(shares):.0f} % of the roofline"
    inside = max(shares) <= 1.0 and max(shares) >= LEAST_SHARE
    return StepOutcome("ok" if inside else "differs", text, tuple(details))


def _run(*command: str) -> "subprocess.CompletedProcess[str]":
    return subprocess.run(
        command, cwd=ROOT, capture_output=True, text=True, check=False, timeout=STEP_SECONDS
    )


def _tail(text: str, lines: int = 20) -> tuple[str, ...]:
    return tuple(text.strip().splitlines()[-lines:])
