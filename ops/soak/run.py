"""A storm: jobs without end through a real stack, while faults drawn at random break it.

    python -m ops.soak.run --hours 8
    python -m ops.soak.run --hours 0.03 --seed 7 --database sqlite --objects folder

An API, two workers, Redis or Valkey, PostgreSQL or SQLite, an S3 server behind a proxy or a folder, each a
process of its own; what dies is started again as a service manager would. The seed, a new one unless given,
decides which faults come in which order, and is printed first and last. When the time is over nothing more is
broken, everything has to end, and SQL of the soak's own (`ops.soak.verify`) and the audit look at what is
left. Exit code 0 when nothing was lost, done or billed twice, no job failed, every law holds, no process died
but by a fault, and each sick worker took itself out.
"""

import argparse
import contextlib
import json
import secrets
import shutil
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from sqlalchemy import func, select

import migrations
from ops.soak.faults import Faults, Supervisor, answers
from ops.soak.half_open import HalfOpenProxy
from ops.soak.load import Load, endless_recordings
from ops.soak.objects import s3_server, s3_settings, stored_objects
from ops.soak.report import Outcome, repeated_decodings, summary
from ops.soak.schedule import Planned, meanings, schedule
from ops.soak.verify import Submitted, breaches
from ops.testbed.counting_model import decodings
from ops.testbed.faulty_s3 import FaultyS3
from ops.testbed.mounts import OWN_MOUNTS, can_unmount
from ops.testbed.postgres import PostgresServer
from ops.testbed.stack import Stack
from spool.audit.rules import Grace
from spool.audit.runner import audit
from spool.broker.embedded_redis import EmbeddedRedis, temporary_home
from spool.errors import SpoolError
from spool.store.jobs import job_counts
from spool.tables import chunks, cost_lines, event_inbox, jobs

WORKERS = ("alpha", "beta")
RECORDINGS = "in"
"""The folder of the recordings, below the stack's home."""
STALL_SECONDS = 300.0
MODELS = {"demo-tdt": str(Path(__file__).parents[2] / "models" / "demo"), "tones": "sleep=0.2"}


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
    """One run: submits, injects for `seconds`, then waits for the end of every job."""

    stack: Stack
    load: Load
    faults: Faults
    plan: Iterator[Planned]
    seconds: float
    began: float = field(default_factory=time.monotonic)
    injected: list[Injected] = field(default_factory=list)
    ended: int = 0
    changed: float = field(default_factory=time.monotonic)

    def run(self) -> None:
        """Until the time is over and every job has ended. Raises RuntimeError when nothing ends any more."""
        self.load.start()
        planned = next(self.plan)
        due, shown = time.monotonic() + planned.pause, 0.0
        while not (self.load.is_over() and self.ended >= len(self.load.submitted)):
            self._look()
            now = time.monotonic()
            if now - self.began > self.seconds:
                self.load.stop.set()
            elif now >= due and not self.load.broken:
                self._inject(planned)
                planned = next(self.plan)
                due = time.monotonic() + planned.pause
            elif now - shown > 10:
                shown = now
                self.say(f"{len(self.injected)} faults")
            if now - self.changed > STALL_SECONDS or self.load.broken:
                self.load.stop.set()
                self.load.abort.set()
                raise RuntimeError(
                    f"{self.ended} of {len(self.load.submitted)} ended; then nothing; {self.load.broken}"
                )
            time.sleep(0.1)
        self._look()

    def _look(self) -> None:
        ended, now = self._count(), time.monotonic()
        if ended != self.ended:
            self.ended, self.changed = ended, now
        for one in self.injected:
            if one.recovered is None and self.ended > one.ended:
                one.recovered = now - self.began - one.at

    def _inject(self, planned: Planned) -> None:
        at = time.monotonic()
        done = self.faults.inject(planned)
        took = time.monotonic() - at
        self.changed = time.monotonic()
        self.ended = self._count()
        self.injected.append(Injected(planned, done, at - self.began, took, self.ended))
        self.say(f"{planned.fault} {done}".strip())

    def say(self, words: str) -> None:
        """Print a line of the run's log."""
        now = time.monotonic() - self.began
        print(f"[{now:5.0f} s] {self.ended:5} of {len(self.load.submitted)} ended · {words}", flush=True)

    def _count(self) -> int:
        with contextlib.suppress(SpoolError), self.stack.db.read() as tx:
            counts = job_counts(tx)
            return sum(number for state, number in counts.items() if state.terminal)
        return self.ended


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
        environment: dict[str, Any] = {}
        parts: dict[str, object] = {}
        if database == "postgresql":
            postgres = PostgresServer()
            stop.callback(postgres.close)
            postgres.start()
            url = postgres.create_database("soak")
            parts["postgres"] = postgres
            parts["proxies"] = {name: stop.enter_context(_proxy(postgres)) for name in (*WORKERS, "api")}
        else:
            url = f"sqlite:///{home / 'spool.db'}"
        migrations.upgrade(url)
        if objects == "s3":
            proxy = stop.enter_context(FaultyS3(stop.enter_context(s3_server()).endpoint))
            environment |= s3_settings(proxy.url)
            parts["s3"] = proxy
        environment |= {
            "SPOOL_LEASE_SECONDS": str(lease),
            "SPOOL_HEARTBEAT_SECONDS": "1",
            "SPOOL_SWEEP_SECONDS": "0.5",
            "SPOOL_HINT_STALE_SECONDS": "5",
            "SPOOL_MAX_BATCH": "8",
            "SPOOL_SOURCE_ROOTS": str(home / RECORDINGS),
            "SPOOL_MAX_CRASHES": "20",
            "SPOOL_RETENTION": '{"*": {"source": "1h"}}',  # a night's recordings do not stay
        }
        stack = Stack(home, url, redis, models=MODELS, **environment)
        stop.callback(stack.close)
        stack.log = home / "log"
        if can_unmount():
            stack.prefix = OWN_MOUNTS
        yield stack, parts


@contextlib.contextmanager
def _proxy(postgres: PostgresServer) -> Iterator[HalfOpenProxy]:
    """Another socket of the server, which can fall silent."""
    folder = Path(tempfile.mkdtemp(prefix="spool-"))
    proxy = HalfOpenProxy(folder / ".s.PGSQL.5432", postgres.folder / ".s.PGSQL.5432")
    try:
        yield proxy
    finally:
        proxy.close()
        shutil.rmtree(folder, ignore_errors=True)


def soaked(args: argparse.Namespace, stack: Stack, parts: dict[str, object]) -> Outcome:
    """Run it all, drain the workers, verify; what came of it."""
    proxies: dict[str, HalfOpenProxy] = parts.get("proxies", {})  # type: ignore[assignment]
    behind: dict[str, dict[str, Any]] = {
        name: {"SPOOL_DATABASE_URL": PostgresServer.url_in(proxy.folder, "soak")}
        for name, proxy in proxies.items()
    }
    url = stack.serve(**behind.get("api", {}))
    supervisor = Supervisor(stack, WORKERS, int(url.rpartition(":")[2]), behind)
    supervisor.start()
    faults = Faults(stack, supervisor, args.model, **parts)  # type: ignore[arg-type]
    chosen = args.faults.split(",") if args.faults else list(meanings(args.database, args.objects))
    plan = schedule(args.seed, chosen, WORKERS, args.pause)
    files = endless_recordings(stack.home / RECORDINGS, args.long_each, args.long_seconds, args.seed)
    load = Load(url, args.model, files, lambda: soak.ended, args.most_open, args.rate)
    soak = Soak(stack, load, faults, plan, args.hours * 3600)
    try:
        soak.run()
    except BaseException:
        with contextlib.suppress(OSError):
            print("\n".join(stack.log.read_text().splitlines()[-40:]) if stack.log else "", file=sys.stderr)
        supervisor.stop()
        raise
    seconds = time.monotonic() - soak.began
    soak.say("all ended; now everything is verified")
    _settle(stack)
    supervisor.stop()
    assert answers(url) or stack.serve(port=int(url.rpartition(":")[2]))
    stack.stop_workers()
    # As they lie there: over the proxy and its server each of thousands takes 20 ms.
    objects = stored_objects(stack.home / "stored") if faults.s3 else stack.objects
    submitted = Submitted(load.submitted, load.twins, load.served)

    def read(key: str) -> bytes:
        with objects.open(key) as stream:
            return stream.read()

    own = breaches(stack.db.engine, submitted, read)
    # What an API left that died between an upload and its row is no breach for an hour; here it is time now.
    swept = audit(stack.db, objects, Grace(upload_seconds=-60.0), remove_orphans=True)
    report = audit(stack.db, objects, Grace(upload_seconds=-60.0)) if swept.removed else swept
    verified = time.monotonic() - soak.began - seconds
    with stack.db.read() as tx:
        states = Counter(tx.scalars(select(jobs.c.state)))
        sums = tx.execute(
            select(cost_lines.c.wasted, func.sum(cost_lines.c.engine_ns)).group_by(cost_lines.c.wasted)
        )
        engine_ns = {bool(wasted): int(total) for wasted, total in sums}
        saved = tx.scalar(select(func.count()).select_from(chunks)) or 0
        length = chunks.c.end_sample - chunks.c.start_sample
        was_decoded = chunks.c.engine_ns > 0  # a chunk of silence is kept too
        kept_samples = tx.scalar(select(func.coalesce(func.sum(length), 0)).where(was_decoded)) or 0
    return Outcome(
        seed=args.seed,
        submitted=len(load.submitted),
        jobs=sum(states.values()),
        states=dict(states),
        again=load.again,
        read=sum(map(len, load.served.values())),
        injected=[
            (one.planned.fault, f"{one.planned.variant} {one.done}".strip(), one.at, one.took, one.recovered)
            for one in soak.injected
        ],
        deaths=len(supervisor.deaths),
        unexpected=[f"{death.name} ended with {death.code}" for death in supervisor.unexpected],
        seconds=seconds,
        verified_seconds=verified,
        audio_seconds=load.audio_seconds,
        saved=saved,
        repeats=repeated_decodings(
            decodings(stack.decoded_list.read_text()), faults.stopped, int(kept_samples)
        ),
        billable_ns=engine_ns.get(False, 0),
        wasted_ns=engine_ns.get(True, 0),
        orphans=swept.removed,
        breaches=own + [f"{name} was still ready" for name in faults.slow_to_leave],
        audit=report,
    )


def _settle(stack: Stack) -> None:
    """Wait until what follows the last job's end is done: its events are numbered."""
    deadline = time.monotonic() + 60
    while time.monotonic() < deadline:
        with contextlib.suppress(SpoolError), stack.db.read() as tx:
            if not tx.scalar(select(func.count()).select_from(event_inbox)):
                return
        time.sleep(0.2)


def main(arguments: Sequence[str] | None = None) -> int:
    """Soak, print, and say by the exit code whether it held."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--hours", type=float, default=0.5, help="how long jobs and faults come")
    parser.add_argument("--seed", type=int, default=None, help="of the faults and recordings; else a new one")
    parser.add_argument("--faults", default="", help="names, with commas; else all that fit the stack")
    parser.add_argument("--pause", type=float, default=6.0, help="the longest pause between two faults, s")
    parser.add_argument("--rate", type=float, default=2.0, help="jobs a second by each of three submitters")
    parser.add_argument("--most-open", type=int, default=40, help="jobs that wait for their end")
    parser.add_argument("--long-each", type=int, default=20, help="one recording in so many is long")
    parser.add_argument("--long-seconds", type=float, default=300.0)
    parser.add_argument("--database", choices=("postgresql", "sqlite"), default="postgresql")
    parser.add_argument("--objects", choices=("s3", "folder"), default="s3")
    parser.add_argument("--model", choices=tuple(MODELS), default="tones")
    parser.add_argument("--lease", type=float, default=10.0)
    parser.add_argument("--json", action="store_true", help="the outcome as JSON, for machines")
    args = parser.parse_args(arguments)
    known = meanings(args.database, args.objects)
    if unknown := set(filter(None, args.faults.split(","))) - known.keys():
        parser.error(
            f"no such fault in this stack: {', '.join(sorted(unknown))}; there are {', '.join(known)}"
        )
    if args.seed is None:
        args.seed = secrets.randbelow(1_000_000)
    print(f"seed {args.seed}", flush=True)
    with servers(args.database, args.objects, args.lease) as (stack, parts):
        outcome = soaked(args, stack, parts)
    print(json.dumps(outcome.document(), indent=2) if args.json else summary(outcome))
    return 0 if outcome.held else 1


if __name__ == "__main__":
    sys.exit(main())
