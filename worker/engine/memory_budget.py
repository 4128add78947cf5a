"""How large a batch this machine's memory allows, unless the settings give a limit.

    device  the memory a GPU may use: `iogpu.wired_limit_mb` if set, else macOS's default (two thirds of up to
            36 GiB, three quarters of more); without a GPU, three quarters of the machine's memory, or of the
            container's
    batch   half of what loaded models' weights (a quarter of the memory) leave of it; the other half is for
            the search, for MLX's cache of buffers, and as a reserve

`SpeechModel.cost` gives the bytes of an utterance in a batch. Imports no MLX.
"""

import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

from spool.settings import FRAME_BUDGET, MAX_BATCH, Settings
from worker.engine.protocol import DEFAULT_LOADER, EngineOptions, ModelCacheOptions
from worker.engine.scheduler import BatchLimits
from worker.machine.hardware import Hardware, device_of, this_machine

CACHE_BYTES = 2 << 30
"""The limit of MLX's cache of freed buffers on a GPU, which would otherwise grow to most of the memory."""
AMPLE_BATCH_BYTES = 2 << 30
"""The largest batch of a model with 600 million parameters; more memory does not make it faster."""
MODELS_SHARE = 0.25
LARGE_MAC = 36 * 2**30
CGROUP_LIMITS = (Path("/sys/fs/cgroup/memory.max"), Path("/sys/fs/cgroup/memory/memory.limit_in_bytes"))


@dataclass(frozen=True, slots=True)
class MemoryBudget:
    """`device`, `models` and `batch` in bytes; `frames` (feature frames of 10 ms) and `utterances` of one
    batch at most, which bound its time."""

    device: int
    models: int
    batch: int
    frames: int
    utterances: int

    def __str__(self) -> str:
        return (
            f"{self.device / 2**30:.1f} GiB for the engine, {self.models / 2**30:.1f} of it for models: "
            f"batches of {self.batch / 2**30:.1f} GiB, {self.frames} frames and {self.utterances} utterances"
        )


def budget_of(settings: Settings, hardware: Hardware) -> MemoryBudget:
    """The budget of this machine, or that of the settings."""
    limit = read_wired_limit() if hardware.apple_gpu else container_limit()
    return memory_budget(
        hardware, limit, settings.frame_budget, settings.max_batch, settings.model_memory_bytes
    )


def memory_budget(
    hardware: Hardware,
    limit: int | None = None,
    frames: int | None = None,
    utterances: int | None = None,
    models: int | None = None,
) -> MemoryBudget:
    """The budget by the rules above; `limit` is the GPU's or the container's in bytes, None if there is none;
    given values override."""
    memory = hardware.memory
    if hardware.apple_gpu:
        device = limit or memory * (2 if memory <= LARGE_MAC else 2.25) / 3
    else:
        memory = min(memory, limit or memory)
        device = memory * 0.75
    models = models or int(memory * MODELS_SHARE)
    batch = int((device - models) / 2)
    return MemoryBudget(int(device), models, batch, frames or FRAME_BUDGET, utterances or MAX_BATCH)


def read_wired_limit() -> int | None:
    """The GPU's memory limit set with `sysctl iogpu.wired_limit_mb`, in bytes; None if not set."""
    try:
        answer = subprocess.run(
            ["sysctl", "-n", "iogpu.wired_limit_mb"], capture_output=True, text=True, check=False
        )
    except OSError:
        return None
    return int(answer.stdout) * 2**20 or None if answer.stdout.strip().isdigit() else None


def container_limit() -> int | None:
    """The memory limit of this process's container in bytes; None if there is none."""
    for place in CGROUP_LIMITS:
        try:
            text = place.read_text(encoding="ascii").strip()
        except OSError:
            continue
        return int(text) if text.isdigit() else None
    return None


FRAME_SAMPLES = 160  # a feature frame of 10 ms at 16 kHz


def engine_options(settings: Settings, loader: str = DEFAULT_LOADER) -> EngineOptions:
    """The engine that the settings ask for."""
    budget = budget_of(settings, this_machine())
    model_cache = ModelCacheOptions(
        most=sys.maxsize,
        budget_bytes=budget.models,
        stay_seconds=settings.model_stay_seconds,
        pinned=frozenset(settings.models[name] for name in settings.pinned_models),
    )
    limits = BatchLimits(budget.utterances, budget.frames * FRAME_SAMPLES, budget.batch)
    return EngineOptions(
        slots=settings.engine_slots,
        limits=limits,
        model_cache=model_cache,
        loader=loader,
        share=settings.work_share,
        device=device_of(settings.device, this_machine()),
    )
