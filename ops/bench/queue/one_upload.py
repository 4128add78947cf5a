"""How long an upload of five seconds takes on a stack that has nothing else to do.

    python -m ops.bench.queue.one_upload --times 20

The stack of `spool up` with the demo model, one thread an engine. Uploads come one after another, each
followed by its events as a client follows them. Prints of each what the server's clock says (accepted to
claimed, claimed to ended, of which the engine was busy) and the client's (submitted to answered, to the first
progress, to the end), and the median of all. What is more than the engine's time has 1 s.
"""

import argparse
import os
import shutil
import statistics
import sys
import tempfile
import time
from pathlib import Path
from typing import NamedTuple

import httpx
import soundfile

from api.local.demo import demo_environ
from api.local.stack import Stack
from api.local.token import local_token
from ops.testbed.processes import ROOT
from spool.client import Spool
from spool.domain.jobs import JobState

SAMPLES = ROOT / "samples" / "demo-tdt"
THREADS = dict.fromkeys(("OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS", "SPOOL_KERNEL_THREADS"), "1")
MOST_SECONDS = 1.0
SECONDS = 5.0


class Took(NamedTuple):
    """Milliseconds of one upload."""

    answered: float
    claimed: float
    worked: float
    engine: float
    told: float
    ended: float

    @property
    def more(self) -> float:
        """What was not the engine's."""
        return self.ended - self.engine


def recording() -> Path:
    """The sample that comes nearest to five seconds."""
    files = sorted(SAMPLES.rglob("*.flac"))
    return min(files, key=lambda file: abs(soundfile.info(file).duration - SECONDS))


def upload(spool: Spool, url: str, token: str, file: Path) -> Took:
    """Submit it, and follow its events to the end."""
    began = time.perf_counter()
    job = spool.submit(file)
    answered, told = time.perf_counter(), 0.0
    headers = {"Authorization": f"Bearer {token}"}
    with httpx.stream("GET", f"{url}/v1/jobs/{job.id}/events", headers=headers, timeout=60) as events:
        for line in events.iter_lines():
            if not told and line.startswith("event: job."):
                told = time.perf_counter()
            if line == "event: end":
                break
    ended = time.perf_counter()
    job = spool.job(job.id)
    assert job.state is JobState.DONE
    times = job.times
    assert times.started_at is not None
    assert times.finished_at is not None
    claimed = (times.started_at - times.created_at).total_seconds()
    worked = (times.finished_at - times.started_at).total_seconds()
    seconds = (answered - began, claimed, worked, job.cost.engine_seconds, told - began, ended - began)
    return Took(*(1000 * each for each in seconds))


def main() -> int:
    """Print a row for each upload; the exit code is 1 when the median missed its target."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--times", type=int, default=20)
    times = parser.parse_args().times
    home, file = Path(tempfile.mkdtemp(prefix="spool-upload-")), recording()
    kept = {name: value for name, value in os.environ.items() if not name.startswith("SPOOL_")}
    models = {"SPOOL_MODELS": f"demo-tdt={ROOT / 'models' / 'demo'}", "SPOOL_DEFAULT_MODEL": "demo-tdt"}
    environ = demo_environ(kept | THREADS | models, home, SAMPLES) | {"SPOOL_HEARTBEAT_SECONDS": "5"}
    try:
        with Stack(environ, lambda step: print(step, flush=True)) as stack:
            token = local_token(stack.settings.home) or ""
            with Spool(stack.url, token) as spool:
                upload(spool, stack.url, token, file)  # compiles what is not in the cache yet
                took = [upload(spool, stack.url, token, file) for _ in range(times)]
    finally:
        shutil.rmtree(home, ignore_errors=True)
    print(f"| {' | '.join(Took._fields)} | more | load {os.getloadavg()[0]:.1f} |")
    for one in took:
        print("| " + " | ".join(f"{each:.0f}" for each in (*one, one.more)) + " |")
    middle = Took(*map(statistics.median, zip(*took, strict=True)))
    print("median: " + ", ".join(f"{name} {value:.0f}" for name, value in middle._asdict().items()))
    more = statistics.median(one.more for one in took) / 1000
    passed = more <= MOST_SECONDS
    print(f"{more:.2f} s more than the engine's, at most {MOST_SECONDS:g}: {'pass' if passed else 'MISS'}")
    return 0 if passed else 1


if __name__ == "__main__":
    sys.exit(main())
