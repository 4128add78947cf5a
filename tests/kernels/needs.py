"""What the kernels' tests need: where a compiler is missing, its files are left out, and the run says so.

With CI set nothing is left out: a compiler that is missing there is a failure.
"""

import os
import shutil
import sys

from kernels.runtime import compiler

_CI = bool(os.environ.get("CI"))
_NEED_A_COMPILER = ["test_fused.py", "test_device.py", "test_beam_step.py"]
# The sanitizers' run-time libraries and the strict address spaces are those of Debian's packages.
_NEED_DEBIANS = ["test_sanitizers.py", "test_strict.py"]
_DEBIANS = shutil.which("g++") and shutil.which("clang-19")

left_out: list[str] = []
if not _CI and compiler() is None:
    left_out += _NEED_A_COMPILER
if not _CI and (sys.platform != "linux" or not _DEBIANS):
    left_out += _NEED_DEBIANS
