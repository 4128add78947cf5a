"""Kernels as libraries of this machine's CPU: found compiler, cached build, loaded function.

A library is compiled at first use by the system's C++ compiler into a folder of the user
(`SPOOL_KERNEL_CACHE`, else `~/.cache/spool/kernels`). Its name is a hash of everything it depends on: source,
headers, flags, compiler version and CPU. Two processes may build the same library at once: each writes its
own file and renames it into place.

Without a compiler `compiler()` is None and the caller runs the reference. Knows nothing of MLX.
"""

import ctypes
import hashlib
import os
import platform
import shutil
import subprocess
import tempfile
from collections.abc import Callable
from functools import cache
from pathlib import Path

from kernels.runtime.source import SHIM

CPU_SHIM = SHIM / "cpu"
# No fast-math: reassociation breaks exp and the fixed order of sums, and contraction would make results
# differ between compilers. Kernels write fma() where fusing is allowed.
COMMON_FLAGS = ("-std=c++17", "-fPIC", "-shared", "-fvisibility=hidden", "-pthread", "-ffp-contract=off")
FAST_FLAGS = (*COMMON_FLAGS, "-O3", "-march=native", "-fno-math-errno", "-fno-trapping-math")
CHECK_FLAGS = (*COMMON_FLAGS, "-O2", "-march=native")
COMPILE_SECONDS = 300


class BuildFailed(Exception):
    """The compiler refused a kernel, or the cache folder cannot be written."""


@cache
def compiler() -> tuple[str, str] | None:
    """Path and version of the C++ compiler: $CXX, g++, clang++ or c++; None where there is none.

    g++ before clang++: it vectorises the loops over slots about twice as well.
    """
    for name in (os.environ.get("CXX"), "g++", "clang++", "c++"):
        path = shutil.which(name) if name else None
        if path:
            result = subprocess.run([path, "--version"], capture_output=True, text=True, check=False)
            if result.returncode == 0:
                return path, result.stdout.splitlines()[0]
    return None


@cache
def cpu_model() -> str:
    """This CPU's name and features; part of a library's key, since `-march=native` targets this CPU only."""
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
        kept = {
            line.split(":")[0].strip(): line
            for line in lines
            if line.startswith(("model name", "flags", "CPU part", "Features"))
        }
        if kept:
            return "\n".join(kept.values())
    except OSError:
        pass
    command = ["sysctl", "-n", "machdep.cpu.brand_string"]
    try:
        result = subprocess.run(command, capture_output=True, text=True, check=True)
        return result.stdout.strip()
    except (OSError, subprocess.CalledProcessError):
        return f"{platform.machine()} {platform.processor()}"


def has_integer_products() -> bool:
    """Whether this CPU has the instructions of `kernels.nn.int8_products`."""
    flags = cpu_model().split()
    return platform.machine() == "x86_64" and ("avx512_vnni" in flags or "avx_vnni" in flags)


def cache_folder() -> Path:
    """Where libraries are kept; read at each call, so that a test can move it."""
    named = os.environ.get("SPOOL_KERNEL_CACHE")
    if named:
        return Path(named)
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "spool" / "kernels"


@cache
def _shim_text() -> str:
    return "".join(path.read_text() for path in sorted(CPU_SHIM.iterdir()))


def build_library(name: str, source: str, flags: tuple[str, ...], header: str = "") -> Path:
    """Compile `source` unless it is in the cache; returns the library's path. header: of the shim, if the
    source begins with including it; GCC then reads it once for all. Raises `BuildFailed`."""
    toolchain = compiler()
    if toolchain is None:
        raise BuildFailed("there is no C++ compiler (Debian: apt install g++; macOS: xcode-select --install)")
    path, version = toolchain
    parts = (source, _shim_text(), " ".join(flags), version, path, cpu_model())
    key = hashlib.sha256("\0".join(parts).encode()).hexdigest()[:24]
    folder = cache_folder()
    library = folder / f"{name}-{key}.so"
    if library.exists():
        return library
    try:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=folder, prefix="build-") as own:
            text, built = Path(own, f"{name}.cpp"), Path(own, f"{name}.so")
            text.write_text(source)
            ready = _precompile(header, flags, folder) if header and "clang" not in version else ()
            _compile(name, path, [*flags, *ready, f"-I{CPU_SHIM}", str(text), "-o", str(built)])
            built.replace(library)
    except (OSError, subprocess.TimeoutExpired) as error:
        raise BuildFailed(f"kernel {name} cannot be built in {folder}: {error}") from error
    return library


def _precompile(header: str, flags: tuple[str, ...], folder: Path) -> tuple[str, ...]:
    """The flags with which GCC finds the header compiled: three quarters of a small kernel's compile time."""
    path, version = compiler() or ("", "")
    parts = (_shim_text(), " ".join(flags), version, cpu_model())
    own = folder / f"headers-{hashlib.sha256(chr(0).join(parts).encode()).hexdigest()[:24]}"
    if not (own / f"{header}.gch").exists():
        own.mkdir(mode=0o700, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=own, prefix="build-") as making:
            built = Path(making, f"{header}.gch")
            _compile(header, path, [*flags, "-x", "c++-header", str(CPU_SHIM / header), "-o", str(built)])
            built.replace(own / built.name)
    return (f"-I{own}",)


def _compile(name: str, path: str, arguments: list[str]) -> None:
    result = subprocess.run(
        [path, *arguments], capture_output=True, text=True, timeout=COMPILE_SECONDS, check=False
    )
    if result.returncode:
        raise BuildFailed(f"{path} refused {name}: {result.stderr[:4000]}")


def try_compiler() -> str:
    """Build a tiny library; returns the compiler and the cache folder as text. Raises `BuildFailed`."""
    _pool_library()
    path, version = compiler() or ("", "")
    return f"{version} ({path}), libraries in {cache_folder()}"


def _pool_library() -> Path:
    return build_library("pool", (CPU_SHIM / "pool.cpp").read_text(), (*COMMON_FLAGS, "-O2"))


Launch = Callable[
    [ctypes.Array[ctypes.c_void_p], ctypes.Array[ctypes.c_uint], ctypes.Array[ctypes.c_uint], int], None
]


@cache
def thread_pool() -> ctypes.c_void_p:
    """The one pool of threads of this process, as the function pointer that `spool_launch` takes."""
    return ctypes.cast(ctypes.CDLL(str(_pool_library())).spool_parallel_for, ctypes.c_void_p)


def launch_address(library: Path) -> int:
    """The address of a kernel library's launch function, for `replay.cpp`."""
    return ctypes.cast(ctypes.CDLL(str(library)).spool_launch, ctypes.c_void_p).value or 0


def load_launch(library: Path) -> Launch:
    """The function of a kernel's library: buffers, grid and threadgroup in threads, number of CPU threads.

    Raises RuntimeError when lanes diverge (fibers) or the threadgroup is too large.
    """
    function = ctypes.CDLL(str(library)).spool_launch
    function.restype = ctypes.c_char_p
    function.argtypes = [ctypes.c_void_p, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_int, ctypes.c_void_p]
    pool = thread_pool()

    def launch(
        buffers: ctypes.Array[ctypes.c_void_p],
        grid: ctypes.Array[ctypes.c_uint],
        group: ctypes.Array[ctypes.c_uint],
        threads: int,
    ) -> None:
        error = function(buffers, grid, group, threads, pool)
        if error:
            raise RuntimeError(f"{library.stem}: {error.decode()}")

    return launch
