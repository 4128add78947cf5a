"""Which BLAS a fresh process binds to MLX. Each case runs in a process of its own: a binding is made once."""

import json
import os
import platform
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

pytestmark = pytest.mark.integration

ROOT = Path(__file__).parents[3]
PROBE = """
import ctypes, json
{before}
import worker.machine.blas as blas
report = blas.preload_blas()
import mlx.core as mx
import numpy as np
a = np.random.default_rng(0).normal(size=(64, 32)).astype(np.float32)
gap = float(np.abs(np.array(mx.array(a) @ mx.array(a).T) - a @ a.T).max())
everywhere = ctypes.CDLL(None)
bound = blas._path_of(everywhere, "cblas_sgemm") if hasattr(everywhere, "cblas_sgemm") else None
told = blas._thread_count()
threads = [told[0]()] if told else []
with blas.one_thread():
    threads += [told[0]()] if told else []
threads += [told[0]()] if told else []
facts = dict(threads=threads, bound=bound, gap=gap)
print(json.dumps(facts | dict(fast=report.fast, path=report.path, text=str(report))))
"""
NO_SYSTEM = 'import worker.machine.blas; worker.machine.blas.SYSTEM_LIBRARY = "libno-such-blas.so.0"'
x86_64_only = pytest.mark.skipif(
    sys.platform != "linux" or platform.machine() != "x86_64",
    reason="the shim is written for Linux on x86-64",
)
linux_only = pytest.mark.skipif(sys.platform != "linux", reason="MLX uses Accelerate on macOS")


def probe(before: str = "", **environment: str) -> dict[str, Any]:
    run = subprocess.run(
        [sys.executable, "-c", PROBE.format(before=before)],
        env=os.environ | environment,
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert run.returncode == 0, run.stderr
    found = json.loads(run.stdout)
    assert found["gap"] < 1e-4
    return found


@linux_only
def test_mlx_is_given_what_the_report_says() -> None:
    found = probe()
    assert found["fast"], found["text"]
    assert "OpenBLAS" in found["text"]
    assert found["bound"]
    before, within, after = found["threads"]
    assert (within, after) == (1, before)


@x86_64_only
def test_without_a_system_library_the_wheel_serves_through_a_shim() -> None:
    found = probe(NO_SYSTEM)
    assert found["fast"], found["text"]
    assert "scipy_openblas32" in found["path"]
    assert "/fd/" in found["bound"]
    assert found["threads"][1] == 1


@x86_64_only
def test_the_shim_needs_no_compiler_and_leaves_no_file(tmp_path: Path) -> None:
    found = probe(NO_SYSTEM, PATH="", TMPDIR=str(tmp_path))
    assert found["fast"], found["text"]
    assert not list(tmp_path.iterdir())


@linux_only
def test_where_nothing_loads_mlx_keeps_its_own_and_says_so() -> None:
    found = probe(NO_SYSTEM + "; worker.machine.blas.shim_library = lambda *_: b'no library'")
    assert not found["fast"]
    assert "does not load" in found["text"] or "not written for" in found["text"]


@linux_only
def test_too_late_is_said() -> None:
    found = probe("import mlx.core")
    assert not found["fast"]
    assert "before" in found["text"]


def test_asking_twice_loads_once() -> None:
    from worker.machine import preload_blas

    assert preload_blas() is preload_blas()


def check_finding(name: str, **environment: str) -> dict[str, str]:
    """What the real command says of this; a database or broker that is not there is no matter here."""
    run = subprocess.run(
        [sys.executable, "-m", "worker.cli.main", "check", "--json"],
        env={**os.environ, **environment},
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    findings = json.loads(run.stdout)
    return next(finding for finding in findings if finding["name"] == name)


@linux_only
def test_the_check_finds_the_blas_that_a_worker_would_use(tmp_path: Path) -> None:
    finding = check_finding("blas", SPOOL_HOME=str(tmp_path))
    assert (finding["level"], finding["text"]) == ("ok", probe()["text"])
    assert not finding["advice"]


@linux_only
def test_the_check_warns_of_a_slow_product(tmp_path: Path) -> None:
    site = tmp_path / "sitecustomize.py"
    site.write_text(NO_SYSTEM + "\nworker.machine.blas.shim_library = lambda *_: b'no library'\n")
    path = os.pathsep.join((str(tmp_path), str(ROOT)))
    finding = check_finding("blas", SPOOL_HOME=str(tmp_path / "home"), PYTHONPATH=path)
    assert finding["level"] == "warn"
    assert "reference BLAS" in finding["text"]
    assert "libopenblas0" in finding["advice"]
