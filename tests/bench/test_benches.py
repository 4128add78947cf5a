"""Benches that a person runs, at sizes of no use: they run, and what they count is right."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

from ops.bench.engine import cuda_rtfx
from ops.bench.engine.flops import needed
from ops.bench.engine.random_model import LARGE, SMALL
from worker.models import EncoderConfig

ROOT = Path(__file__).parents[2]


def test_operations_of_one_layer_by_hand() -> None:
    # 80 feature frames are 10 encoder frames; width 4, one layer, kernel 3, factor 8, 2 channels, 8 mels
    config = EncoderConfig(
        8, 1, 4, subsampling_factor=8, subsampling_conv_channels=2, conv_kernel_size=3, ff_expansion_factor=2
    )
    work = needed(config, 80)
    square = 2 * 10 * 4 * 4
    assert work.feed_forward == 2 * (square * 2 + square * 2)
    assert work.projections == 4 * square
    assert work.attention == 3 * (2 * 10 * 10 * 4)
    assert work.convolution == square * 2 + square + 2 * 3 * 10 * 4
    strided = 2 * 9 * 2 * (40 * 4 + 20 * 2 + 10 * 1)
    pointwise = 2 * 2 * 2 * (20 * 2 + 10 * 1)
    assert work.subsampling == strided + pointwise + 2 * 10 * 2 * 4
    assert work.total == sum(
        (work.feed_forward, work.projections, work.attention, work.convolution, work.subsampling)
    )


def test_operations_are_those_of_the_published_sizes() -> None:
    # 2.9 and 15.5 GFLOP a second of audio in chunks of 15 s, decoder included (Spool's own roofline)
    assert needed(SMALL.encoder, 1500).total / 15e9 == pytest.approx(2.8, abs=0.2)
    assert needed(LARGE.encoder, 1500).total / 15e9 == pytest.approx(15.3, abs=0.5)


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["ops.bench.engine.limits", "--batches", "2x1"], "2x1 "),
        pytest.param(
            ["ops.bench.engine.plan_check", "random"], " | 3 x 1 s, beam 4 | ", marks=pytest.mark.long
        ),
        (["ops.bench.engine.scaling", "length"], "local attention: 1 s: "),
        (["ops.bench.engine.cuda_rtfx", "--here", "--seconds", "1", "--batches", "2"], "product of float32"),
    ],
)
def test_a_bench_prints_its_table(arguments: list[str], says: str) -> None:
    ran = subprocess.run(
        [sys.executable, "-m", *arguments, "--tiny", "--rounds", "1"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=True,
        timeout=170,
    )
    assert says in ran.stdout


@pytest.mark.integration
@pytest.mark.slow
def test_the_environment_for_cuda_holds_what_the_bench_imports() -> None:
    """Third-party modules of a process that imports what `cuda_rtfx` measures, by their distributions."""
    script = """
import sys, sysconfig
import kernels.runtime.device, ops.bench.engine.flops, ops.bench.engine.random_model
import worker.decode.search, worker.machine.blas
site = sysconfig.get_path("purelib")
print(*{
    name.partition(".")[0]
    for name, module in sys.modules.items()
    if site in (getattr(module, "__file__", None) or "")
})
"""
    ran = subprocess.run([sys.executable, "-c", script], cwd=ROOT, capture_output=True, text=True, check=True)
    installed = {re.split(r"[^\w-]", each)[0].replace("pyyaml", "yaml") for each in cuda_rtfx.PACKAGES}
    by_pydantic = {"pydantic_core", "annotated_types", "typing_extensions", "typing_inspection"}
    assert set(ran.stdout.split()) <= installed | by_pydantic | {"_distutils_hack"}
