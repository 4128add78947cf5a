"""This machine's chip, cores, memory and GPU, detected without MLX.

The chip's name comes from the system, since psutil does not know it.
"""

import importlib.metadata
import os
import platform
import re
import subprocess
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import psutil

from spool.domain.fleet.routing import Backend
from spool.errors import SettingsError
from spool.settings import Device

CUDA_BUILDS = ("mlx-cuda", "mlx-cuda-12", "mlx-cuda-13")
METAL = "metal"
"""The pool whose workers need an Apple GPU; every other pool runs anywhere."""


@dataclass(frozen=True, slots=True)
class Hardware:
    """`memory` in bytes; `apple_gpu` is true on Apple Silicon, whose GPU is on the chip."""

    host: str
    system: str
    machine: str
    chip: str
    cores: int
    memory: int
    apple_gpu: bool
    gpu_cores: int | None = None
    """Cores of the Apple GPU; None if there is none, or if it is not reported."""
    nvidia_gpu: bool = False
    """Whether there is an NVIDIA GPU that the installed MLX can use."""

    def __str__(self) -> str:
        gpu = f", {self.gpu_cores} GPU cores" if self.gpu_cores else ""
        memory = f"{self.memory / 2**30:.0f} GiB"
        return f"{self.chip}, {self.cores} cores{gpu}, {memory}, {self.system} {self.machine}"


def this_machine() -> Hardware:
    """The hardware of this machine."""
    system, machine = platform.system(), platform.machine()
    return Hardware(
        host=platform.node() or "unknown",
        system=system,
        machine=machine,
        chip=_chip(system) or machine or "unknown",
        cores=_cores(),
        memory=psutil.virtual_memory().total,
        apple_gpu=system == "Darwin" and machine == "arm64",
        gpu_cores=_gpu_cores(system),
        nvidia_gpu=_has_nvidia_gpu(),
    )


def backend_of(device: Device, hardware: Hardware) -> Backend:
    """The backend on which MLX computes on this machine under this setting."""
    if device == "cpu":
        return "cpu"
    return "metal" if hardware.apple_gpu else "cuda" if hardware.nvidia_gpu else "cpu"


def device_of(device: Device, hardware: Hardware) -> Literal["gpu", "cpu"]:
    """MLX's device under this setting; "auto" chooses by the hardware."""
    if device != "auto":
        return device
    return "cpu" if backend_of(device, hardware) == "cpu" else "gpu"


def refuse_wrong_pool(pool: str, hardware: Hardware, device: Device = "auto") -> None:
    """Raise SettingsError for the pool `metal` on a machine without an Apple GPU, or with
    SPOOL_DEVICE=cpu."""
    if pool == METAL and device == "cpu":
        raise SettingsError(
            f"The pool {METAL} computes on the GPU: SPOOL_DEVICE=cpu needs another SPOOL_POOL."
        )
    if pool == METAL and not hardware.apple_gpu:
        raise SettingsError(
            f"The pool {METAL} needs an Apple GPU and this machine ({hardware.chip}, {hardware.system}) "
            "has none; set SPOOL_POOL=cpu to work here."
        )


def _chip(system: str) -> str:
    if system == "Darwin":
        answer = subprocess.run(
            ["sysctl", "-n", "machdep.cpu.brand_string"], capture_output=True, text=True, check=False
        )
        return answer.stdout.strip()
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8", errors="replace").splitlines()
    except OSError:
        return platform.processor()
    return next((line.partition(":")[2].strip() for line in lines if line.startswith("model name")), "")


def _gpu_cores(system: str) -> int | None:
    if system != "Darwin":
        return None
    answer = subprocess.run(
        ["ioreg", "-r", "-c", "AGXAccelerator", "-d", "1"], capture_output=True, text=True, check=False
    )
    match = re.search(r'"gpu-core-count"\s*=\s*(\d+)', answer.stdout)
    return int(match[1]) if match else None


def _has_nvidia_gpu() -> bool:
    return Path("/dev/nvidiactl").exists() and any(map(_is_installed, CUDA_BUILDS))


def _is_installed(distribution: str) -> bool:
    try:
        importlib.metadata.distribution(distribution)
    except importlib.metadata.PackageNotFoundError:
        return False
    return True


def _cores() -> int:
    try:
        return len(os.sched_getaffinity(0))
    except AttributeError:  # macOS has none
        return os.cpu_count() or 1
