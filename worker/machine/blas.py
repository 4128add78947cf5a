"""The matrix product that MLX uses on a Linux CPU.

MLX's wheel for Linux comes with the reference BLAS, many times slower than OpenBLAS. The dynamic linker
prefers symbols that are already global, so an OpenBLAS loaded before MLX takes its place. Searched in this
order: the system's `libopenblas.so.0`; the wheel `scipy-openblas32`, whose names have a prefix and so need a
shim (x86-64). Otherwise MLX keeps its own, slow but correct. macOS has Accelerate and needs nothing. Imports
no MLX.
"""

import contextlib
import ctypes
import os
import platform
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from worker.machine.blas_shim import shim_library

SYSTEM_LIBRARY = "libopenblas.so.0"
# The products that MLX calls; LAPACK is not replaced. Integers are 32 bit in this wheel.
PRODUCTS = ("cblas_sgemm", "cblas_dgemm", "cblas_cgemm")
WHEEL_PREFIX = "scipy_"


@dataclass(frozen=True, slots=True)
class BlasReport:
    """Which BLAS the products go to. `fast` is False where MLX keeps its reference BLAS."""

    library: str
    path: str | None
    fast: bool
    reason: str

    def __str__(self) -> str:
        where = f" at {self.path}" if self.path else ""
        return f"{self.library}{where} ({self.reason})"


@cache
def preload_blas() -> BlasReport:
    """Load OpenBLAS so that MLX, imported afterwards, uses it. Never raises; done once per process."""
    if sys.platform == "darwin":
        return BlasReport("Accelerate", None, True, "macOS's own")
    if sys.platform != "linux":
        return _slow(f"no faster BLAS is supported on {sys.platform}")
    if "mlx.core" in sys.modules:
        return _slow("MLX was imported before an OpenBLAS could be loaded")
    system = _load(SYSTEM_LIBRARY)
    if system is not None:
        return BlasReport("OpenBLAS", _path_of(system, "cblas_sgemm"), True, "the system's library")
    return _from_wheel()


@contextlib.contextmanager
def one_thread() -> Iterator[None]:
    """While the block runs, OpenBLAS uses one thread: for small products its threads mostly wait for each
    other, which costs a core on a busy machine. No effect with another BLAS. Only one thread of the process
    may be in such a block."""
    threads = _thread_count()
    if threads is None:
        yield
        return
    get_threads, set_threads = threads
    before = get_threads()
    set_threads(1)
    try:
        yield
    finally:
        set_threads(before)


@cache
def _thread_count() -> tuple[Callable[[], int], Callable[[int], None]] | None:
    """OpenBLAS's functions that get and set its number of threads."""
    report = preload_blas()
    if report.library != "OpenBLAS" or report.path is None:
        return None
    library = ctypes.CDLL(report.path)
    for prefix in ("", WHEEL_PREFIX):
        with contextlib.suppress(AttributeError):
            ask = getattr(library, f"{prefix}openblas_get_num_threads")
            return ask, getattr(library, f"{prefix}openblas_set_num_threads")
    return None


def _slow(reason: str) -> BlasReport:
    return BlasReport("MLX's reference BLAS", None, False, f"slow: {reason}")


def _load(library: str) -> ctypes.CDLL | None:
    try:
        return ctypes.CDLL(library, mode=ctypes.RTLD_GLOBAL)
    except OSError:
        return None


def _from_wheel() -> BlasReport:
    try:
        import scipy_openblas32
    except ImportError:
        return _slow(f"neither {SYSTEM_LIBRARY} nor the wheel scipy-openblas32 is installed")
    folder = Path(scipy_openblas32.get_lib_dir())
    library = next(iter(sorted(folder.glob("libscipy_openblas*.so*"))), None)
    if library is None or _load(str(library)) is None:
        return _slow(f"the wheel scipy-openblas32 holds no library that loads ({folder})")
    if platform.machine() != "x86_64":
        return _slow(
            f"the wheel scipy-openblas32 needs a shim, which does not exist for {platform.machine()}"
        )
    if not _load_shim():
        return _slow("the shim over scipy-openblas32 does not load")
    return BlasReport("OpenBLAS", str(library), True, "the wheel scipy-openblas32")


def _load_shim() -> bool:
    """Bind the names that MLX uses to the wheel's."""
    image = shim_library({name: WHEEL_PREFIX + name for name in PRODUCTS}, "libspool-blas-shim.so")
    try:
        # A file in memory leaves nothing behind, and works where disks are mounted noexec.
        memory = os.memfd_create("spool-blas-shim")
    except OSError:
        return False
    with os.fdopen(memory, "wb") as file:
        file.write(image)
        file.flush()
        return _load(f"/proc/self/fd/{memory}") is not None


class _SymbolInfo(ctypes.Structure):
    _fields_ = (
        ("file", ctypes.c_char_p),
        ("base", ctypes.c_void_p),
        ("name", ctypes.c_char_p),
        ("address", ctypes.c_void_p),
    )


def _path_of(library: ctypes.CDLL, symbol: str) -> str | None:
    """The file that a symbol came from, as the dynamic linker says."""
    info = _SymbolInfo()
    linker = ctypes.CDLL(None)
    address = ctypes.cast(getattr(library, symbol), ctypes.c_void_p)
    if not linker.dladdr(address, ctypes.byref(info)) or not info.file:
        return None
    return os.fsdecode(info.file)
