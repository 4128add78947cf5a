"""Compile every kernel's CUDA text with NVRTC, without a GPU. Run by hand; prints one line a kernel.

    pip install nvidia-cuda-nvrtc nvidia-cuda-runtime    # somewhere; no driver is needed
    python ops/bench/engine/nvrtc_check.py SITE_PACKAGES [--arch sm_90a]

SITE_PACKAGES holds the folder `nvidia` those wheels bring. Each kernel is compiled for the shapes and dtypes
of the tests, as `mx.fast.cuda_kernel` would, with a stand-in for MLX's own header. Says registers and spilled
bytes as the compiler's log gives them. It shows that the text is CUDA, not that it runs.
"""

import argparse
import ctypes
import re
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[3]))

import pytest

from kernels.contracts.case import DTYPES
from kernels.contracts.nn import CASES
from kernels.runtime.source import cuda_text
from ops.testbed.kernel_cases import Launched, recorded

# What MLX's header brings: its types of shapes, and the integer names NVRTC has not of its own.
STAND_IN = """
using int8_t = signed char; using uint8_t = unsigned char;
using int16_t = short; using uint16_t = unsigned short;
using int32_t = int; using uint32_t = unsigned int; using int64_t = long; using uint64_t = unsigned long;
#include <cuda_bf16.h>
#include <cuda_fp16.h>
namespace cooperative_groups {}
struct Shape { int size[10]; int operator[](int i) const { return size[i]; } };
struct Strides { int64_t size[10]; int64_t operator[](int i) const { return size[i]; } };
"""


def launches() -> list[tuple[str, Launched]]:
    patch = pytest.MonkeyPatch()
    kernels_seen = []
    for case in CASES:
        for dtype in DTYPES:
            with recorded(patch) as seen:
                case.run(*case.make(9, DTYPES[dtype]))
            kernels_seen += [(f"{case.name} {dtype}", each) for each in seen]
    return kernels_seen


def compile_with(nvrtc: ctypes.CDLL, source: str, options: list[str]) -> tuple[bool, str]:
    """Whether it compiled, and the log."""
    program = ctypes.c_void_p()
    nvrtc.nvrtcCreateProgram(ctypes.byref(program), source.encode(), b"kernel.cu", 0, None, None)
    encoded = [option.encode() for option in options]
    status = nvrtc.nvrtcCompileProgram(program, len(encoded), (ctypes.c_char_p * len(encoded))(*encoded))
    size = ctypes.c_size_t()
    nvrtc.nvrtcGetProgramLogSize(program, ctypes.byref(size))
    log = ctypes.create_string_buffer(size.value)
    nvrtc.nvrtcGetProgramLog(program, log)
    nvrtc.nvrtcDestroyProgram(ctypes.byref(program))
    return status == 0, log.value.decode()


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("site_packages", type=Path)
    parser.add_argument("--arch", default="sm_90a")
    options = parser.parse_args()
    library = next(iter(sorted(options.site_packages.glob("nvidia/**/libnvrtc.so*"))), None)
    headers = next(iter(sorted(options.site_packages.glob("nvidia/**/include/cuda_fp16.h"))), None)
    if library is None or headers is None:
        print(f"no NVRTC or no CUDA headers under {options.site_packages}: see the top of this file")
        return 2
    nvrtc = ctypes.CDLL(str(library))
    flags = [
        f"-arch={options.arch}",
        "-std=c++17",
        "-default-device",
        f"-I{headers.parent}",
        "--ptxas-options=-v",
    ]
    failed, total, registers, spilled = 0, 0, [], 0
    for name, each in launches():
        _, text = cuda_text(each.kernel, each.arguments, each.made, each.template)
        good, log = compile_with(nvrtc, STAND_IN + text, flags)
        failed, total = failed + (not good), total + 1
        registers += [int(count) for count in re.findall(r"Used (\d+) registers", log)]
        spilled += sum(int(count) for count in re.findall(r"(\d+) bytes spill", log))
        used = [line.strip() for line in log.splitlines() if "registers" in line or "spill" in line]
        print(f"{'ok  ' if good else 'FAIL'} {name:34} {' '.join(used) if good else log[:2000]}")
    print(
        f"{total - failed} of {total} compile with {library.name} for {options.arch}: "
        f"{min(registers, default=0)} to {max(registers, default=0)} registers, {spilled} bytes spilled"
    )
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
