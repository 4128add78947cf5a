"""How often a worker loads models when jobs alternate between two that do not fit together.

    python -m ops.bench.queue.placement [--jobs 24] [--stay 20]

Runs a real worker twice: with `SPOOL_MODEL_STAY_SECONDS` and without. The models are the demo model and a
copy of it; the memory has room for one. Prints loads, seconds spent loading, and how long it took.
"""

import argparse
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path

import migrations
from ops.testbed.processes import ROOT, Fleet
from spool.broker.embedded_redis import EmbeddedRedis, temporary_home
from spool.settings import load_settings

LOADS = "BENCH_LOADS"
DEMO = ROOT / "models" / "demo"
PATIENCE = 900.0


def load(model: str) -> object:
    """What the engine's child loads models with here: it says so in a file."""
    from worker.engine.recognizer import load_recognizer

    with open(os.environ[LOADS], "a", encoding="utf-8") as log:
        log.write(f"{model}\n")
    return load_recognizer(model)


def run(jobs: int, stay: float) -> str:
    home, redis_home = Path(tempfile.mkdtemp(prefix="spool-placement-")), temporary_home()
    second, loads = home / "second", home / "loads"
    shutil.copytree(DEMO, second)
    loads.touch()
    size = sum(file.stat().st_size for file in DEMO.glob("*.safetensors"))
    recordings = [
        shutil.copy(path, home) for path in sorted((ROOT / "samples" / "demo-tdt" / "digits").glob("*.flac"))
    ]
    url = f"sqlite:///{home / 'spool.db'}"
    migrations.upgrade(url)
    try:
        with EmbeddedRedis(redis_home) as redis:
            os.environ[LOADS] = str(loads)
            fleet = Fleet(
                home,
                url,
                redis.url,
                SPOOL_MODELS=f"demo-tdt={DEMO},second={second}",
                SPOOL_MODEL_MEMORY_BYTES=str(int(1.5 * size)),
                SPOOL_MODEL_STAY_SECONDS=str(stay),
                SPOOL_LEASE_SECONDS="120",
                SPOOL_CONCURRENCY="4",
            )
            asked = [
                fleet.submit(Path(recordings[n % len(recordings)]), model=("demo-tdt", "second")[n % 2])
                for n in range(jobs)
            ]
            kept = {name: value for name, value in os.environ.items() if not name.startswith("SPOOL_")}
            worker = subprocess.Popen(
                [sys.executable, "-m", "ops.bench.queue.placement", "--worker"],
                env=kept | fleet.environment,
                cwd=ROOT,
            )
            until(lambda: any(one.state == "ready" for one in fleet.workers()), "the worker ready")
            began = time.monotonic()
            until(lambda: fleet.ended(asked), "all jobs ended")
            took = time.monotonic() - began
            worker.send_signal(signal.SIGTERM)
            worker.wait(PATIENCE)
            seconds = fleet.workers()[0].counts.load_ns / 1e9
            states = {str(fleet.job(job).state) for job in asked}
            fleet.close()
        count = len(loads.read_text().splitlines())
        return f"| {stay:g} | {count} | {seconds:.1f} | {took:.0f} | {', '.join(sorted(states))} |"
    finally:
        shutil.rmtree(home, ignore_errors=True)
        shutil.rmtree(redis_home, ignore_errors=True)


def until(condition: Callable[[], bool], what: str) -> None:
    """Wait for it, without keeping the processor busy."""
    deadline = time.monotonic() + PATIENCE
    while not condition():
        if time.monotonic() > deadline:
            raise TimeoutError(f"{what} never came true")
        time.sleep(0.3)


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--jobs", type=int, default=24)
    parser.add_argument("--stay", type=float, default=20.0)
    parser.add_argument("--worker", action="store_true", help="be the worker")
    chosen = parser.parse_args(arguments)
    if chosen.worker:
        from worker.tasks import run_worker

        return run_worker(load_settings(), loader="ops.bench.queue.placement:load")
    print("| stay, s | loads | s in loading | s in all | jobs |\n|---|---|---|---|---|")
    for stay in dict.fromkeys((chosen.stay, 0.0)):
        print(run(chosen.jobs, stay), flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
