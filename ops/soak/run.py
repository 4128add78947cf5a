"""Thousands of jobs through a real stack, while a seeded schedule breaks it; ends with the audit.

    python -m ops.soak.run --jobs 2000 --long 3 --seed 1
    python -m ops.soak.run --jobs 30 --long 1 --number 6 --database sqlite --objects folder --model tones

An API, two workers, Redis or Valkey, PostgreSQL or SQLite, an S3 server behind a proxy or a folder, each a
process of its own; what dies is started again as a service manager would. Exit code 0 when nothing was lost,
nothing was done or billed twice, every law holds, and besides what was on the device when a process died at
most `--most-repeated` of the decodings were repeated.
"""

import argparse
import contextlib
import json
import logging
import shutil
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from sqlalchemy import func, select

import migrations
from ops.soak.faults import Faults, Supervisor, answers
from ops.soak.load import Load, recordings
from ops.soak.report import Outcome, repeated_decodings, summary
from ops.soak.schedule import Planned, meanings, schedule
from ops.testbed.counting_model import decodings
from ops.testbed.faulty_s3 import FaultyS3
from ops.testbed.postgres import PostgresServer
from ops.testbed.s3 import S3Server
from ops.testbed.stack import Stack
from spool.audit.rules import Grace
from spool.audit.runner import audit
from spool.broker.embedded_redis import EmbeddedRedis, temporary_home
from spool.errors import SpoolError
from spool.store.jobs import job_counts
from spool.tables import chunks, cost_lines, jobs

WORKERS = ("alpha", "beta")
STALL_SECONDS = 600.0
MODELS = {"demo-tdt": str(Path(__file__).parents[2] / "models" / "demo"), "tones": "sleep=0.05"}


@dataclass
class Injected:
    """A fault as it was injected: when (s from the start), for how long, how many jobs had ended when it was
    over, and how long after its beginning the next one ended."""

    planned: Planned
    done: str
    at: float
    took: float
    ended: int
    recovered: float | None = None


@dataclass
class Soak:
    """One run: submits, injects, waits."""

    stack: Stack
    load: Load
    faults: Faults
    plan: list[Planned]
    total: int
    began: float = field(default_factory=time.monotonic)
    injected: list[Injected] = field(default_factory=list)
    ended: int = 0

    def run(self) -> None:
        """Until every job has ended. Raises RuntimeError when nothing ends any more."""
        self.load.start()
        changed, shown = time.monotonic(), 0.0
        plan = list(self.plan)
        while self.ended < self.total or not self.load.ended.is_set():
            ended = self._count()
            if ended != self.ended:
                self.ended, changed = ended, time.monotonic()
            self._recovered()
            if plan and self.ended >= plan[0].after:
                self._inject(plan.pop(0))
                changed = time.monotonic()
            elif time.monotonic() - shown > 10:
                shown = time.monotonic()
                self._say(f"{len(self.injected)} faults")
            if time.monotonic() - changed > STALL_SECONDS or self.load.broken:
                self.load.stop.set()
                raise RuntimeError(f"{self.ended} of {self.total} ended; then nothing; {self.load.broken}")
            time.sleep(0.1)
        self._recovered()

    def _inject(self, planned: Planned) -> None:
        at = time.monotonic()
        done = self.faults.inject(planned.fault, planned.target)
        took = time.monotonic() - at
        self.ended = self._count()
        self.injected.append(Injected(planned, done, at - self.began, took, self.ended))
        self._say(f"{planned.fault} {done}".strip())

    def _say(self, words: str) -> None:
        now = time.monotonic() - self.began
        print(f"[{now:5.0f} s] {self.ended:5} of {self.total} ended · {words}", flush=True)

    def _count(self) -> int:
        with contextlib.suppress(SpoolError), self.stack.db.read() as tx:
            counts = job_counts(tx)
            return sum(number for state, number in counts.items() if state.terminal)
        return self.ended

    def _recovered(self) -> None:
        now = time.monotonic() - self.began
        for one in self.injected:
            if one.recovered is None and self.ended > one.ended:
                one.recovered = now - one.at


@contextlib.contextmanager
def servers(database: str, objects: str, lease: float) -> Iterator[tuple[Stack, dict[str, object]]]:
    """The stack's servers, and what the faults need of them."""
    with contextlib.ExitStack() as stop:
        home = Path(tempfile.mkdtemp(prefix="spool-soak-"))
        stop.callback(shutil.rmtree, home, ignore_errors=True)
        redis_home = temporary_home()
        stop.callback(shutil.rmtree, redis_home, ignore_errors=True)
        redis = EmbeddedRedis(redis_home)
        redis.start()
        stop.callback(redis.stop)
        environment: dict[str, str] = {}
        parts: dict[str, object] = {}
        if database == "postgresql":
            postgres = PostgresServer()
            stop.callback(postgres.close)
            postgres.start()
            url = postgres.create_database("soak")
            parts["postgres"] = postgres
        else:
            url = f"sqlite:///{home / 'spool.db'}"
        migrations.upgrade(url)
        if objects == "s3":
            proxy = stop.enter_context(FaultyS3(stop.enter_context(_s3()).endpoint))
            environment |= _s3_settings(proxy.url)
            parts["s3"] = proxy
        environment |= {
            "SPOOL_LEASE_SECONDS": str(lease),
            "SPOOL_HEARTBEAT_SECONDS": "1",
            "SPOOL_SWEEP_SECONDS": "0.5",
            "SPOOL_HINT_STALE_SECONDS": "5",
            "SPOOL_MAX_BATCH": "8",
            "SPOOL_MAX_CRASHES": "20",
        }
        stack = Stack(home, url, redis, models=MODELS, **environment)
        stop.callback(stack.close)
        stack.log = home / "log"
        yield stack, parts


@contextlib.contextmanager
def _s3() -> Iterator[S3Server]:
    from moto.server import ThreadedMotoServer

    logging.getLogger("werkzeug").setLevel(logging.ERROR)
    server = ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
    server.start()
    host, port = server.get_host_and_port()
    server_of_s3 = S3Server(f"http://{host}:{port}")
    server_of_s3.client().create_bucket(Bucket="soak")
    try:
        yield server_of_s3
    finally:
        server.stop()


def _s3_settings(url: str) -> dict[str, str]:
    return {
        "SPOOL_OBJECTS": "s3://soak/archive",
        "SPOOL_S3_ENDPOINT_URL": url,
        "SPOOL_S3_ACCESS_KEY_ID": S3Server.access_key,
        "SPOOL_S3_SECRET_ACCESS_KEY": S3Server.secret_key,
    }


def soaked(args: argparse.Namespace, stack: Stack, parts: dict[str, object]) -> Outcome:
    """Run it all, drain the workers, audit; what came of it."""
    files = list(recordings(stack.home / "in", args.jobs, args.long, args.long_seconds, args.seed))
    url = stack.serve()
    supervisor = Supervisor(stack, WORKERS, int(url.rpartition(":")[2]))
    supervisor.start()
    faults = Faults(stack, supervisor, **parts)  # type: ignore[arg-type]
    chosen = args.faults.split(",") if args.faults else list(meanings(args.database, args.objects))
    number = args.number or max(len(chosen), args.jobs // 30)
    plan = schedule(args.seed, len(files), chosen, number, WORKERS)
    load = Load(url, args.model, files)
    soak = Soak(stack, load, faults, plan, len(files))
    try:
        soak.run()
    except BaseException:
        with contextlib.suppress(OSError):
            print("\n".join(stack.log.read_text().splitlines()[-40:]) if stack.log else "", file=sys.stderr)
        raise
    seconds = time.monotonic() - soak.began
    supervisor.stop()
    assert answers(url) or stack.serve(port=int(url.rpartition(":")[2]))
    stack.stop_workers()
    # What an API left that died between an upload and its row is no breach for an hour; here it is time now.
    swept = audit(stack.db, stack.objects, Grace(upload_seconds=-60.0), remove_orphans=True)
    report = audit(stack.db, stack.objects, Grace(upload_seconds=-60.0))
    with stack.db.read() as tx:
        known = {row.name.removesuffix(".wav"): row for row in tx.execute(select(jobs))}
        states = Counter(tx.scalars(select(jobs.c.state)))
        sums = tx.execute(
            select(cost_lines.c.wasted, func.sum(cost_lines.c.engine_ns)).group_by(cost_lines.c.wasted)
        )
        engine_ns = {bool(wasted): int(total) for wasted, total in sums}
        saved = int(tx.scalar(select(func.count()).select_from(chunks)) or 0)
    keys = {one.path.stem for one in files}
    return Outcome(
        submitted=len(keys),
        jobs=sum(states.values()),
        states=dict(states),
        lost=sorted(key for key in keys if key not in known or known[key].state != "done"),
        double=sum(states.values()) - len(keys & known.keys()),
        answered_otherwise=[key for key, job in load.jobs.items() if known[key].id != job],
        again=load.again,
        injected=[(one.planned.fault, one.done, one.at, one.took, one.recovered) for one in soak.injected],
        crashes=len(supervisor.crashes),
        seconds=seconds,
        audio_seconds=sum(one.seconds for one in files),
        saved=saved,
        repeats=repeated_decodings(decodings(stack.decoded_list.read_text()), faults.stopped),
        billable_ns=engine_ns.get(False, 0),
        wasted_ns=engine_ns.get(True, 0),
        orphans=swept.removed,
        audit=report,
    )


def main(arguments: Sequence[str] | None = None) -> int:
    """Soak, print, and say by the exit code whether it held."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--jobs", type=int, default=2000, help="short recordings, 3 to 8 s")
    parser.add_argument("--long", type=int, default=3, help="long recordings beside them")
    parser.add_argument("--long-seconds", type=float, default=1200.0)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--faults", default="", help="names, with commas; else all that fit the stack")
    parser.add_argument("--number", type=int, default=0, help="how many are injected; else one each 30 jobs")
    parser.add_argument("--database", choices=("postgresql", "sqlite"), default="postgresql")
    parser.add_argument("--objects", choices=("s3", "folder"), default="s3")
    parser.add_argument("--model", choices=tuple(MODELS), default="demo-tdt")
    parser.add_argument("--lease", type=float, default=10.0)
    parser.add_argument("--most-repeated", type=float, default=0.02)
    parser.add_argument("--json", action="store_true", help="the outcome as JSON, for machines")
    args = parser.parse_args(arguments)
    known = meanings(args.database, args.objects)
    if unknown := set(filter(None, args.faults.split(","))) - known.keys():
        parser.error(
            f"no such fault in this stack: {', '.join(sorted(unknown))}; there are {', '.join(known)}"
        )
    with servers(args.database, args.objects, args.lease) as (stack, parts):
        outcome = soaked(args, stack, parts)
    print(json.dumps(outcome.document(), indent=2) if args.json else summary(outcome))
    return 0 if outcome.held(args.most_repeated) else 1


if __name__ == "__main__":
    sys.exit(main())
