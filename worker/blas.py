"""The matrix product that MLX uses on a Linux CPU.

MLX's wheel for Linux brings the reference BLAS, many times slower than OpenBLAS. The dynamic linker prefers
symbols that are already global, so an OpenBLAS loaded before MLX takes its place. Looked for in this order:
the system's `libopenblas.so.0`; the wheel `scipy-openblas32`, whose names carry a prefix and so need a shim
of three functions, compiled once where there is a C compiler. Elsewhere MLX keeps its own, slow but right.
macOS has Accelerate: nothing is done there. Knows no model; imports no MLX.
"""

import ctypes
import hashlib
import os
import platform
import shutil
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from functools import cache
from pathlib import Path

SYSTEM_LIBRARY = "libopenblas.so.0"
SHIM_TIMEOUT_SECONDS = 60
# The products that MLX calls; its LAPACK stays its own. Integers are 32 bit in this wheel.
SHIM_SOURCE = """
#define PRODUCT(letter, scalar, real)                                                                       \\
    void scipy_cblas_##letter##gemm(int, int, int, int, int, int, scalar, const real *, int, const real *,  \\
                                    int, scalar, real *, int);                                              \\
    void cblas_##letter##gemm(int order, int ta, int tb, int m, int n, int k, scalar alpha, const real *a,  \\
                              int lda, const real *b, int ldb, scalar beta, real *c, int ldc) {             \\
        scipy_cblas_##letter##gemm(order, ta, tb, m, n, k, alpha, a, lda, b, ldb, beta, c, ldc);            \\
    }
PRODUCT(s, float, float)
PRODUCT(d, double, double)
PRODUCT(c, const void *, void)
"""


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
    """Loads OpenBLAS so that MLX, imported afterwards, uses it. Never raises; done once in a process."""
    if sys.platform == "darwin":
        return BlasReport("Accelerate", None, True, "macOS's own")
    if sys.platform != "linux":
        return _slow(f"nothing better is known for {sys.platform}")
    if "mlx.core" in sys.modules:
        return _slow("MLX was imported before an OpenBLAS could be loaded")
    system = _load(SYSTEM_LIBRARY)
    if system is not None:
        return BlasReport("OpenBLAS", _path_of(system, "cblas_sgemm"), True, "the system's library")
    return _from_wheel()


def blas_status() -> str:
    """One line for a person: which BLAS is in use and why."""
    return str(preload_blas())


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
    found = next(iter(sorted(folder.glob("libscipy_openblas*.so*"))), None)
    if found is None or _load(str(found)) is None:
        return _slow(f"the wheel scipy-openblas32 holds no library that loads ({folder})")
    try:
        shim = _shim()
    except (OSError, subprocess.SubprocessError) as cause:
        return _slow(f"the shim over scipy-openblas32 could not be compiled: {cause}")
    if _load(str(shim)) is None:
        return _slow(f"the shim over scipy-openblas32 does not load: {shim}")
    return BlasReport("OpenBLAS", str(found), True, "the wheel scipy-openblas32")


def _shim() -> Path:
    """The compiled shim, from the cache of this user. Raises OSError or SubprocessError."""
    digest = hashlib.sha256(f"{SHIM_SOURCE}{platform.machine()}".encode()).hexdigest()[:16]
    root = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "spool"
    target = root / f"openblas-shim-{digest}.so"
    if target.is_file():
        return target
    compiler = next((name for name in ("cc", "gcc", "clang") if shutil.which(name)), None)
    if compiler is None:
        raise FileNotFoundError("no C compiler is installed")
    root.mkdir(parents=True, exist_ok=True, mode=0o700)
    with tempfile.TemporaryDirectory(dir=root) as scratch:
        source, built = Path(scratch) / "shim.c", Path(scratch) / "shim.so"
        source.write_text(SHIM_SOURCE)
        subprocess.run(
            [compiler, "-O2", "-shared", "-fPIC", "-o", str(built), str(source)],
            check=True,
            capture_output=True,
            timeout=SHIM_TIMEOUT_SECONDS,
        )
        built.replace(target)  # whole or not at all: another process may look at the same time
    return target


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
