"""`spool-worker check`: whether a worker can run on this machine, and what to do if not.

Every probe returns findings and never raises. The engine runs in its own process, as in a worker, so a device
that aborts does not end the check.
"""

import os
import shutil
import sys
from collections.abc import Callable, Iterator
from importlib.metadata import PackageNotFoundError, version

from kernels.runtime.build_cpu import BuildFailed, try_compiler
from spool.broker.celery_app import celery_app, queue_depth
from spool.domain.jobs import queue_name
from spool.errors import SpoolError, StorageError
from spool.objects import object_store
from spool.settings import Settings, unknown_variables
from spool.store.database import Database
from spool.store.jobs import job_counts
from spool.store.system import default_model
from worker.diagnostics.finding import Finding
from worker.diagnostics.macos import check_mac
from worker.engine.client import Engine
from worker.engine.memory_budget import AMPLE_BATCH_BYTES, budget_of, engine_options
from worker.engine.protocol import DEFAULT_LOADER
from worker.machine.blas import preload_blas
from worker.machine.hardware import METAL, Hardware, this_machine
from worker.service.announcement import default_model_warning
from worker.service.health import clock_problem, disk_problem, find_existing, write_problem
from worker.service.schedule import OffHours
from worker.sources.shares import Shares

MODEL_SECONDS = 600.0  # a model from the hub may have to be downloaded first
LITTLE_DISK = 10 * 2**30
LITTLE_MEMORY = 4 * 2**30


def check_machine(settings: Settings, loader: str = DEFAULT_LOADER) -> Iterator[Finding]:
    """All findings, in the order in which a worker would encounter them."""
    hardware = this_machine()
    yield from _machine(hardware)
    for sentence in unknown_variables():
        yield Finding("settings", "warn", sentence, "Correct or remove it.")
    yield _memory(settings, hardware)
    if hardware.apple_gpu:
        yield from check_mac()
    yield from _hours(settings)
    yield _gpu(settings, hardware)
    yield _mlx()
    yield from _blas()
    yield _kernels(hardware)
    yield _disk(settings)
    yield _probe("database", lambda: _database(settings), "Start it, or check SPOOL_DATABASE_URL.")
    yield from _default_model(settings)
    yield from _source_roots(settings)
    yield _probe("clock", lambda: _clock(settings), "Synchronise the clock of this machine by NTP.")
    yield _probe(
        "broker", lambda: _broker(settings), "Start Redis (or `spool up`), or check SPOOL_REDIS_URL."
    )
    yield _probe("object store", lambda: _objects(settings), "Check SPOOL_OBJECTS and its credentials.")
    yield from _models(settings, loader)


def _machine(hardware: Hardware) -> Iterator[Finding]:
    python = f"Python {sys.version_info.major}.{sys.version_info.minor}"
    yield Finding("machine", "ok", f"{hardware}, {python}")
    if hardware.memory < LITTLE_MEMORY:
        yield Finding(
            "memory",
            "warn",
            f"{hardware.memory / 2**30:.1f} GiB of memory is little for a full-size model.",
            "Lower SPOOL_MAX_BATCH, SPOOL_FRAME_BUDGET and SPOOL_ENGINE_SLOTS.",
        )


def _memory(settings: Settings, hardware: Hardware) -> Finding:
    budget = budget_of(settings, hardware)
    if budget.batch < AMPLE_BATCH_BYTES and settings.frame_budget is None:
        advice = (
            "On a Mac that does nothing else, raise the limit of the GPU: sudo sysctl iogpu.wired_limit_mb=…"
        )
        return Finding("batches", "ok", f"{budget}; more memory would allow larger batches", advice)
    return Finding("batches", "ok", str(budget))


def _hours(settings: Settings) -> Iterator[Finding]:
    if settings.work_hours:
        off = OffHours(settings.work_hours)
        off.look()
        yield Finding("hours", "ok", off.reason or f"within working hours ({settings.work_hours})")
    if settings.work_share < 1:
        yield Finding(
            "share", "ok", f"the engine is busy at most {100 * settings.work_share:.0f} % of the time"
        )


def _gpu(settings: Settings, hardware: Hardware) -> Finding:
    if hardware.apple_gpu:
        advice = "" if settings.pool == METAL else f"Set SPOOL_POOL={METAL} to serve jobs for that pool."
        return Finding("gpu", "ok" if not advice else "warn", f"Apple GPU ({hardware.chip})", advice)
    if settings.pool == METAL:
        return Finding("gpu", "fail", f"no Apple GPU, and the pool is {METAL}", "Set SPOOL_POOL=cpu.")
    return Finding("gpu", "ok", f"no Apple GPU; the pool {settings.pool} needs none")


def _mlx() -> Finding:
    try:
        return Finding("mlx", "ok", f"MLX {version('mlx')}")
    except PackageNotFoundError:
        return Finding("mlx", "fail", "MLX is not installed", "pip install 'spool-transcribe[worker]'")


def _blas() -> Iterator[Finding]:
    if sys.platform != "linux":
        return
    report = preload_blas()
    advice = "" if report.fast else "Install libopenblas0, or pip install scipy-openblas32."
    yield Finding("blas", "ok" if report.fast else "warn", str(report), advice)


def _kernels(hardware: Hardware) -> Finding:
    """Which backend the kernels use here."""
    # Imports MLX, which binds its products to whatever BLAS is loaded by then.
    from kernels.runtime.device import Backend, read_backend

    try:
        if read_backend() is Backend.REFERENCE:
            text = "SPOOL_KERNELS selects plain MLX, which is two to four times slower on a CPU"
            return Finding("kernels", "warn", text, "Unset SPOOL_KERNELS.")
        if hardware.apple_gpu:
            return Finding("kernels", "ok", "Metal, compiled by MLX when first used")
        if hardware.nvidia_gpu:
            return Finding("kernels", "ok", "CUDA, compiled by MLX when first used, a second a kernel")
        return Finding("kernels", "ok", f"compiled when first used, by {try_compiler()}")
    except ValueError as wrong:
        return Finding("kernels", "fail", str(wrong), "Unset SPOOL_KERNELS.")
    except BuildFailed as failure:
        text = f"plain MLX is used, which is two to four times slower: {failure}"
        advice = "Install g++ (Debian: apt install g++), or set SPOOL_KERNEL_CACHE to a writable folder."
        return Finding("kernels", "warn", text, advice)


def _disk(settings: Settings) -> Finding:
    problem = disk_problem(settings.home, settings.disk_floor_bytes)
    if problem is not None:
        advice = "Free some space: recordings are copied here while they are read."
        return Finding("disk", "fail", problem, advice)
    place = find_existing(settings.home)
    problem = write_problem(settings.home / "tmp") if place == settings.home else None
    if problem is not None or not os.access(place, os.W_OK):
        text = problem or f"{place} is not writable"
        return Finding("disk", "fail", text, "Set SPOOL_HOME to a folder that this user can write.")
    free = shutil.disk_usage(place).free
    text = f"{free / 2**30:.1f} GiB free for {settings.home}"
    if free < LITTLE_DISK:
        return Finding("disk", "warn", text, "Long recordings are copied here while they are read.")
    return Finding("disk", "ok", text)


def _clock(settings: Settings) -> str:
    db = Database(settings.database_url)
    try:
        problem = clock_problem(db, settings.max_clock_skew_seconds)
    finally:
        db.close()
    if problem is not None:
        raise StorageError(problem)
    return "agrees with the database"


def _default_model(settings: Settings) -> Iterator[Finding]:
    db = Database(settings.database_url)
    try:
        with db.read() as tx:
            warning = default_model_warning(settings, default_model(tx))
    except SpoolError:
        return  # the database's own finding says so
    finally:
        db.close()
    if warning is not None:
        yield Finding("default model", "warn", warning, "Remove the setting, or `spool models default NAME`.")


def _source_roots(settings: Settings) -> Iterator[Finding]:
    shares = Shares(settings.source_roots)
    for root in settings.source_roots:
        problem = shares.root_problem(root)
        advice = "" if problem is None else "Mount it: jobs that read from it wait, and stop this worker."
        yield Finding("sources", "ok" if problem is None else "warn", problem or f"{root} is there", advice)


def _probe(name: str, ask: Callable[[], str], advice: str) -> Finding:
    try:
        return Finding(name, "ok", ask())
    except Exception as error:  # noqa: BLE001 - whatever a driver raises is a finding
        text = error.message if isinstance(error, SpoolError) else f"{type(error).__name__}: {error}"
        return Finding(name, "fail", text, advice)


def _database(settings: Settings) -> str:
    db = Database(settings.database_url)
    try:
        with db.read() as tx:
            counts = job_counts(tx)
    finally:
        db.close()
    return f"{db.dialect}: " + ", ".join(f"{number} {state}" for state, number in counts.items())


def _broker(settings: Settings) -> str:
    app = celery_app(settings)
    try:
        queue = queue_name(settings.pool)
        return f"{queue_depth(app, queue)} messages in {queue}"
    finally:
        app.close()


def _objects(settings: Settings) -> str:
    object_store(settings).check()
    return settings.objects


def _models(settings: Settings, loader: str) -> Iterator[Finding]:
    try:
        engine = Engine(engine_options(settings, loader)).start()
    except SpoolError as error:
        yield Finding("engine", "fail", error.message, "See the message above.")
        return
    try:
        yield Finding("engine", "ok", f"the process starts ({settings.engine_slots} slots)")
        for name, place in settings.models.items():
            yield _probe(f"model {name}", lambda place=place: _model(engine, place), "Check SPOOL_MODELS.")  # type: ignore[misc]
        place = settings.models[settings.self_test_model]
        yield _probe("self-test", lambda: _self_test(engine, place), "See the engine's log above.")
    finally:
        engine.close()


def _model(engine: Engine, place: str) -> str:
    info = engine.describe(place).result(MODEL_SECONDS)
    return f"{place}: {', '.join(info.heads)} on {info.device or 'its device'}, weights {info.sha256[:12]}"


def _self_test(engine: Engine, place: str) -> str:
    """The self-test that an unhealthy worker must pass before it takes jobs again."""
    engine.probe(place).result(MODEL_SECONDS)
    return f"{place} decodes a test sound"
