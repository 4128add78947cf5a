"""Where a kernel runs, and what happens when it cannot be built."""

import logging
import os
import subprocess
import sys
import threading
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import mlx.core as mx
import numpy as np
import pytest

from kernels.contracts import same_bits
from kernels.contracts.case import normal
from kernels.nn import elementwise
from kernels.runtime import (
    FAST_FLAGS,
    Backend,
    BuildFailed,
    build_cpu,
    build_library,
    device,
    read_backend,
    use_backend,
)
from worker.diagnostics.check import _kernels
from worker.machine import this_machine

pytestmark = pytest.mark.slow

ROOT = Path(__file__).parents[3]
TINY = 'extern "C" int answer() { return 42; }\n'


@pytest.fixture
def fresh(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[Path]:
    """An empty cache folder, and nothing remembered of earlier builds."""
    for name in ("SPOOL_KERNELS", "SPOOL_KERNEL_THREADS", "CXX"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("SPOOL_KERNEL_CACHE", str(tmp_path / "cache"))
    remembered = (read_backend, device._threads, device._compile_kernel, build_cpu.compiler)
    for each in remembered:
        each.cache_clear()
    device_before = mx.default_device()
    mx.set_default_device(mx.cpu)
    yield tmp_path / "cache"
    mx.set_default_device(device_before)
    for each in remembered:
        each.cache_clear()
    device._given_up.clear()


def test_linux_compiles_its_kernels(fresh: Path) -> None:
    assert device.backend() is Backend.CPU
    x = normal(3, 100)
    assert float(mx.max(mx.abs(elementwise.silu(x) - elementwise.silu_reference(x)))) < 1e-6
    built = sorted(path.name for path in fresh.iterdir())
    assert any(name.startswith("silu-") for name in built)
    assert device.kernel_status()[0] == "kernels: cpu"
    assert any(str(fresh) in line for line in device.kernel_status())


def test_the_environment_names_a_backend(fresh: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SPOOL_KERNELS", "reference")
    assert device.backend() is Backend.REFERENCE
    # Read once: a later change does not split a process.
    monkeypatch.setenv("SPOOL_KERNELS", "cpu")
    assert device.backend() is Backend.REFERENCE
    with use_backend("fibers"):
        assert device.backend() is Backend.FIBERS
    assert device.backend() is Backend.REFERENCE


@pytest.mark.parametrize(("apple", "chosen"), [(True, Backend.METAL), (False, Backend.CUDA)])
def test_on_a_gpu_its_kernels_run(
    apple: bool, chosen: Backend, fresh: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(mx, "default_device", lambda: mx.Device(mx.gpu))
    monkeypatch.setattr(mx.metal, "is_available", lambda: apple)
    assert device.backend() is chosen


@pytest.mark.parametrize(
    ("variable", "value", "said"),
    [("SPOOL_KERNELS", "fast", "must be auto, metal"), ("SPOOL_KERNEL_THREADS", "0", "at least 1")],
)
def test_a_wrong_setting_is_refused(
    variable: str, value: str, said: str, fresh: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(variable, value)
    with pytest.raises(ValueError, match=said):
        elementwise.silu(normal(3, 100))


def test_without_a_compiler_the_reference_runs(fresh: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(fresh))
    assert device.backend() is Backend.REFERENCE
    x = normal(3, 100)
    assert same_bits(elementwise.silu(x), elementwise.silu_reference(x))
    assert "none found" in " ".join(device.kernel_status())
    with use_backend("cpu"), pytest.raises(BuildFailed, match="no C\\+\\+ compiler"):
        elementwise.silu(x)


def test_a_compiler_that_refuses_costs_speed_alone(
    fresh: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    broken = tmp_path / "g++"
    broken.write_text(
        '#!/bin/sh\n[ "$1" = --version ] && { echo broken 1; exit; }\necho no disk >&2; exit 1\n'
    )
    broken.chmod(0o755)
    monkeypatch.setenv("CXX", str(broken))
    x = normal(3, 100)
    with caplog.at_level(logging.WARNING):
        assert same_bits(elementwise.silu(x), elementwise.silu_reference(x))
        assert same_bits(elementwise.silu(x), elementwise.silu_reference(x))
    assert len(caplog.records) == 1
    assert "no disk" in caplog.text
    assert any("runs as plain MLX" in line for line in device.kernel_status())
    with use_backend("cpu"), pytest.raises(BuildFailed):
        elementwise.layer_norm(x, mx.ones(100), mx.zeros(100))


def test_a_cache_that_cannot_be_written_costs_speed_alone(
    fresh: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("SPOOL_KERNEL_CACHE", str(tmp_path / "file" / "cache"))
    x = normal(3, 100)
    assert same_bits(elementwise.silu(x), elementwise.silu_reference(x))
    assert "cannot be built" in " ".join(device.kernel_status())


def test_a_library_is_named_by_all_it_depends_on(fresh: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    first = build_library("tiny", TINY, FAST_FLAGS)
    made = first.stat().st_mtime_ns
    assert build_library("tiny", TINY, FAST_FLAGS) == first
    assert first.stat().st_mtime_ns == made
    others = [
        build_library("tiny", TINY + "\n", FAST_FLAGS),
        build_library("tiny", TINY, (*FAST_FLAGS, "-g")),
    ]
    monkeypatch.setattr(build_cpu, "cpu_model", lambda: "another processor")
    others.append(build_library("tiny", TINY, FAST_FLAGS))
    compiler, _ = build_cpu.compiler() or ("", "")
    monkeypatch.setattr(build_cpu, "compiler", lambda: (compiler, "another version"))
    others.append(build_library("tiny", TINY, FAST_FLAGS))
    assert len({first, *others}) == 5


@pytest.mark.integration
def test_processes_may_build_the_same_kernel_at_once(fresh: Path) -> None:
    code = (
        "import mlx.core as mx; from kernels.nn import elementwise; from kernels.runtime import device\n"
        "with device.use_backend('cpu'): print(elementwise.silu(mx.ones(9))[0].item())"
    )
    command = [sys.executable, "-c", code]
    environment = os.environ | {"SPOOL_KERNEL_CACHE": str(fresh)}
    running = [
        subprocess.Popen(command, cwd=ROOT, env=environment, stdout=subprocess.PIPE, text=True)
        for _ in range(3)
    ]
    outputs = {process.communicate(timeout=120)[0] for process in running}
    assert len(outputs) == 1
    assert outputs.pop().startswith("0.731")
    names = sorted(path.name.split("-")[0] for path in fresh.iterdir())
    assert names == ["headers", "pool", "silu"]


def test_gcc_reads_the_header_of_all_kernels_once(fresh: Path) -> None:
    _, version = build_cpu.compiler() or ("", "")
    with use_backend("cpu"):
        elementwise.silu(mx.ones(9))
        kept = [(path, path.stat().st_mtime_ns) for path in fresh.glob("headers-*/*")]
        assert [path.name for path, _ in kept] == ([] if "clang" in version else ["metal_names.h.gch"])
        elementwise.layer_norm(mx.ones((2, 100)), mx.ones(100), mx.zeros(100))
    assert [(path, path.stat().st_mtime_ns) for path in fresh.glob("headers-*/*")] == kept


def test_the_number_of_threads_changes_no_bit(fresh: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    x = normal(40, 3, 5000)
    made = []
    for threads in ("1", "4"):
        monkeypatch.setenv("SPOOL_KERNEL_THREADS", threads)
        device._threads.cache_clear()
        with use_backend("cpu"):
            made.append(elementwise.silu(x))
    assert same_bits(*made)


def test_two_callers_at_once_do_not_disturb_each_other(fresh: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SPOOL_KERNEL_THREADS", "2")
    inputs = [np.array(normal(40, 4000, seed=seed)) for seed in range(3)]
    expected = [np.array(elementwise.silu(mx.array(x))) for x in inputs]
    equal: list[bool] = []

    def work(which: int) -> None:
        made = [np.array(elementwise.silu(mx.array(inputs[which]))) for _ in range(10)]
        equal.extend(np.array_equal(each, expected[which]) for each in made)

    workers = [threading.Thread(target=work, args=(which,)) for which in range(3)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    assert equal == [True] * 30


def test_an_override_is_of_its_thread_alone(fresh: Path) -> None:
    seen: list[Backend] = []
    with use_backend("reference"):
        worker = threading.Thread(target=lambda: seen.append(device.backend()))
        worker.start()
        worker.join()
        assert device.backend() is Backend.REFERENCE
    assert seen == [Backend.CPU]


def test_results_are_memory_of_their_own() -> None:
    """A kernel writes into arrays MLX made: a later one must not get the same memory while it is in use."""
    x = normal(8, 4096)
    with use_backend("cpu"):
        kept = [elementwise.silu(x * step) for step in range(6)]
        for step, each in enumerate(kept):
            assert same_bits(each, elementwise.silu(x * step))


@pytest.mark.integration
def test_the_check_names_compiler_and_cache_without_mlx(fresh: Path) -> None:
    code = "import sys, kernels.runtime.build_cpu as b; print(b.try_compiler(), 'mlx.core' in sys.modules)"
    environment = os.environ | {"SPOOL_KERNEL_CACHE": str(fresh)}
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=ROOT, env=environment, capture_output=True, text=True, check=True
    )
    assert str(fresh) in done.stdout
    assert done.stdout.endswith("False\n")


def test_the_check_warns_where_kernels_cannot_be_built(fresh: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    linux = replace(this_machine(), apple_gpu=False, nvidia_gpu=False)
    assert _kernels(linux).level == "ok"
    assert "CUDA" in _kernels(replace(linux, nvidia_gpu=True)).text
    monkeypatch.setenv("PATH", str(fresh))
    build_cpu.compiler.cache_clear()
    finding = _kernels(linux)
    assert finding.level == "warn"
    assert "apt install g++" in finding.advice
    read_backend.cache_clear()
    monkeypatch.setenv("SPOOL_KERNELS", "reference")
    assert "SPOOL_KERNELS" in _kernels(linux).text
    read_backend.cache_clear()
    monkeypatch.setenv("SPOOL_KERNELS", "quick")
    assert _kernels(linux).level == "fail"
