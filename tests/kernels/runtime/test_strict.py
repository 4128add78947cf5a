"""Is it Metal? The text MLX generates through clang, with Metal's address spaces as real types.

No Metal compiler exists for Linux. This one knows what Metal knows of `device`, `constant` and `threadgroup`:
an input of fewer than 8 elements is `constant`, and a body that names `device` then does not compile.
"""

import re
import shutil
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from kernels.contracts import CASES, DTYPES, Case
from kernels.runtime import SHIM, metal_text
from kernels.runtime.source import ANNOTATION, THREADGROUP_ARRAY
from ops.testbed.kernel_cases import Launched, every_case, recorded

pytestmark = pytest.mark.slow

FLAGS = [
    "-std=c++14",
    "-fsyntax-only",
    "-nostdinc",
    "-fno-exceptions",
    "-fno-rtti",
    "-Wall",
    "-Wno-unused",
    "-Wno-unknown-attributes",
    "-Wdouble-promotion",
    "-Wno-c++17-extensions",
]

# What Metal has not, and C++ would take.
RULES = {
    r"\[[&=]?\]\s*\(": "a lambda",
    r"\b(double|long\s+long|goto|new|virtual|dynamic_cast|typeid|throw|try|thread_local)\b": "no Metal",
    r"(?<![\w.])\d+\.\d*(?:[eE][-+]?\d+)?(?![\w.fFhH])": "a float literal without f is a double elsewhere",
    r"\bstd::": "the standard library",
}


def clang() -> str:
    """clang 19: the first whose address spaces and bfloat are good enough, in C++."""
    names = ["clang++"] if sys.platform == "darwin" else ["clang-19", "clang-20", "clang-21"]
    found = next(filter(None, map(shutil.which, names)), None)
    assert found, "clang 19 or newer is needed to check the kernels (Debian: apt install clang-19)"
    return found


def strict_text(launched: Launched) -> str:
    """The Metal text without its annotations, for a C++ compiler with `shim/strict/metal_strict.h`."""
    _, text = metal_text(launched.kernel, launched.arguments, launched.made, launched.template)
    text = THREADGROUP_ARRAY.sub(r"\1static threadgroup \2 \3[\4];", text)
    text = re.sub(r'\[\[host_name\(".*?"\)\]\] ', "", ANNOTATION.sub("", text)).replace("[[kernel]] ", "")
    return f'#define SIMD_W 32\n#include "metal_strict.h"\n#line 1 "{launched.kernel.name}.metal"\n{text}'


def complaints(launched: Launched, folder: Path) -> str:
    source = folder / f"{launched.kernel.name}.cpp"
    source.write_text(strict_text(launched))
    command = [clang(), *FLAGS, f"-I{SHIM / 'strict'}", str(source)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    return done.stderr if done.returncode or done.stderr.strip() else ""


def launches_of(case: Case, batch: int, dtype: str, monkeypatch: pytest.MonkeyPatch) -> list[Launched]:
    with recorded(monkeypatch) as launches:
        case.run(*case.make(batch, DTYPES[dtype]))
    return launches


@every_case
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("batch", [1, 9])
def test_a_kernel_is_metal(
    case: Case, dtype: str, batch: int, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    for launched in launches_of(case, batch, dtype, monkeypatch):
        assert complaints(launched, tmp_path) == ""


@every_case
def test_a_kernel_uses_only_words_metal_has(case: Case, monkeypatch: pytest.MonkeyPatch) -> None:
    for launched in launches_of(case, 2, "float32", monkeypatch):
        kernel = launched.kernel
        code = re.sub(r"//[^\n]*", "", kernel.header + kernel.body)
        for pattern, why in RULES.items():
            assert not re.search(pattern, code), f"{kernel.name}: {why}: {re.search(pattern, code)}"
        for comment in re.findall(r"//[^\n]*", kernel.body):
            # MLX adds a parameter for every name it finds in the body, comments included.
            assert not re.search(r"_(shape|strides|ndim)\b|thread_position|thread_index", comment)


SEEDED = {
    "a device pointer to an input that is constant when small": (
        "const int length = lengths[utterance];",
        "device const int* all = lengths; const int length = all[utterance];",
    ),
    "a pointer to device memory without its address space": (
        "const int length = lengths[utterance];",
        "const int* all = lengths; const int length = all[utterance];",
    ),
    "a double literal": ("(1.0f + exp(-gate))", "(1.0 + exp(-gate))"),
    "a shuffle of 64 bits": ("gated[r] = 0.0f;", "gated[r] = float(simd_shuffle_xor(long(1), ushort(1)));"),
    "a write to an input": ("gated[r] = 0.0f;", "gated[r] = 0.0f; shift[0] = gated[r];"),
    "a name Metal has not": ("gated[r] = 0.0f;", "gated[r] = expf(0.0f);"),
}


@pytest.mark.parametrize("seeded", SEEDED)
def test_a_seeded_mistake_is_found(seeded: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    case = next(each for each in CASES if each.name == "glu-lead4")
    (launched,) = launches_of(case, 2, "float32", monkeypatch)
    before, after = SEEDED[seeded]
    body = launched.kernel.body.replace(before, after, 1)
    assert body != launched.kernel.body
    assert complaints(replace(launched, kernel=replace(launched.kernel, body=body)), tmp_path)
