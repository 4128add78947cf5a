"""A whole Spool as processes over real servers, the faults done to it, and what must hold afterwards."""

import itertools
import json
import os
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import httpx

from spool.audit import Patience
from spool.auditor import AuditReport, audit
from spool.embedded import EmbeddedRedis
from spool.failpoints import FIRED, VARIABLE
from spool.ids import new_id
from spool.jobs import JobOptions, JobState
from spool.objects import object_store
from spool.store.jobs import NewJob, Source, create_job
from tests.faults.model import LIST
from tests.worker.processes import DEADLINE, ROOT, Fleet, alive
from tests.worker.workshop import speechlike, until, write_wav

LOG = "SPOOL_FAULTS_LOG"  # a file to add what was measured to; the table in docs/faults.md is made from it
_levels = itertools.count(1)


@dataclass
class Fault:
    """One injected fault, its jobs, and what came of it. Printed when it is over."""

    name: str
    jobs: list[str] = field(default_factory=list)
    injected: float = 0.0
    recovered: float = 0.0
    repeated: int = 0
    decoded: int = 0
    states: str = ""
    note: str = ""

    @property
    def seconds(self) -> float:
        return self.recovered - self.injected

    def show(self) -> None:
        line = (
            f"fault: {self.name} | {self.states} | recovered in {self.seconds:.1f} s | "
            f"{self.repeated} of {self.decoded} decodings repeated | {self.note}"
        )
        print(line)
        if path := os.environ.get(LOG):
            with open(path, "a", encoding="utf-8") as log:
                log.write(f"{line}\n")


class Stack(Fleet):
    """A `Fleet` with an API, failpoints, and an audit at the end of each fault."""

    def __init__(self, home: Path, database_url: str, redis: EmbeddedRedis, **environment: str) -> None:
        self.redis = redis
        self.plan = home / "failpoints"
        self.fired_folder = home / "fired"
        self.decoded_list = home / "decoded"
        self.fired_folder.mkdir(parents=True)
        self.decoded_list.touch()
        gate = home / "gate"
        self.gate = gate
        models = f"plain=plain,gated=gate={gate},slow=sleep=0.2,fresh=fresh"
        told = {
            "SPOOL_MODELS": models,
            "SPOOL_DEFAULT_MODEL": "plain",
            "SPOOL_MAX_BATCH": "2",
            "SPOOL_MAX_DEATHS": "5",
            "SPOOL_SOURCE_ROOTS": str(home),
            VARIABLE: f"@{self.plan}",
            FIRED: str(self.fired_folder),
            LIST: str(self.decoded_list),
        }
        redis_url = environment.pop("SPOOL_REDIS_URL", redis.url)
        super().__init__(home, database_url, redis_url, **told, **environment)
        self.objects = object_store(self.settings)
        self._api: subprocess.Popen[bytes] | None = None
        self._read = 0

    # --- processes ------------------------------------------------------------------------------------------

    def worker(self, name: str = "alpha") -> "subprocess.Popen[bytes]":
        """A running worker of this name: the one there is, else a new one."""
        for process in self._workers:
            if process.poll() is None and self._name_of(process) == name:
                return process
        return self.start("-m", "tests.faults.run_worker", name=name)

    def launch(self, name: str) -> "subprocess.Popen[bytes]":
        """A worker that is not waited for, since it will not live long."""
        kept = {key: value for key, value in os.environ.items() if not key.startswith("SPOOL_")}
        told = {**kept, **self.environment, "SPOOL_WORKER_NAME": name}
        process = subprocess.Popen([sys.executable, "-m", "tests.faults.run_worker"], env=told, cwd=ROOT)
        self._workers.append(process)
        return process

    def _name_of(self, process: "subprocess.Popen[bytes]") -> str:
        return next((w.info.name for w in self.workers() if w.info.pid == process.pid), "")

    def stop_workers(self) -> None:
        """Drain every worker that still runs."""
        running = [process for process in self._workers if process.poll() is None]
        for process in running:
            process.send_signal(signal.SIGCONT)
            process.send_signal(signal.SIGTERM)
        for process in running:
            assert process.wait(DEADLINE) == 0, "a worker drains with 0"

    def serve(self) -> str:
        """The address of a running API: the one there is, else a new one."""
        announced = self.home / "api.json"
        if self._api is None or self._api.poll() is not None:
            announced.unlink(missing_ok=True)
            kept = {key: value for key, value in os.environ.items() if not key.startswith("SPOOL_")}
            command = [sys.executable, "-m", "api.cli", "serve", "--port", "0", "--announce", str(announced)]
            self._api = subprocess.Popen(command, env={**kept, **self.environment}, cwd=ROOT)
            until(lambda: announced.exists() or self.api.poll() is not None, "the API listens")
        return str(json.loads(announced.read_text())["url"])

    @property
    def api(self) -> "subprocess.Popen[bytes]":
        assert self._api is not None
        return self._api

    def submit_stored(self, path: Path, model: str = "plain") -> str:
        """A job whose recording is an upload in the object store, as the API would have left it."""
        job_id = new_id("job")
        stored = self.objects.put_file(f"jobs/{job_id}/source", path)
        source = Source("upload", stored.key, stored.size, stored.etag)
        options = JobOptions(model=model)
        with self.db.begin() as tx:
            return create_job(tx, NewJob(source, options, path.name, id=job_id))[0].id

    def upload(self, path: Path, key: str, model: str = "plain") -> str:
        """Submit a recording over HTTP; its job's id."""
        with httpx.Client(timeout=30, trust_env=False) as client, path.open("rb") as file:
            answer = client.post(
                f"{self.serve()}/v1/jobs",
                headers={"Idempotency-Key": key},
                data={"request": json.dumps({"options": {"model": model}})},
                files={"file": (path.name, file, "audio/wav")},
            )
        assert answer.status_code in {200, 202}, answer.text
        return str(answer.json()["id"])

    def close(self) -> None:
        for process in self._workers:
            if process.poll() is None:
                process.send_signal(signal.SIGCONT)
        if self._api is not None and self._api.poll() is None:
            self._api.send_signal(signal.SIGCONT)
            self._api.terminate()
            self._api.wait(DEADLINE)
        super().close()

    # --- failpoints -----------------------------------------------------------------------------------------

    def arm(self, **actions: str) -> None:
        """Arm these points and nothing else; called as `arm(**{"save.committed": "kill"})`."""
        for name in actions:
            (self.fired_folder / name).unlink(missing_ok=True)
        temporary = self.plan.with_suffix(".new")
        temporary.write_text(";".join(f"{name}={action}" for name, action in actions.items()))
        temporary.replace(self.plan)

    def disarm(self) -> None:
        self.plan.unlink(missing_ok=True)

    def fired(self, name: str) -> bool:
        return (self.fired_folder / name).exists()

    # --- recordings and what became of them -----------------------------------------------------------------

    def record(self, seconds: float = 100) -> Path:
        """A recording like no other of this session, so that a repeated decoding is known by its samples."""
        number = next(_levels)
        return write_wav(self.home / f"{number}.wav", speechlike(seconds, 0.2 + number / 1000))

    def decoded(self) -> Counter[str]:
        """How often each utterance was given to the model since the last call."""
        lines = self.decoded_list.read_text().splitlines()
        new, self._read = lines[self._read :], len(lines)
        return Counter(new)

    @contextmanager
    def fault(self, name: str, *, note: str = "") -> Iterator[Fault]:
        """Inject within the block, setting `injected` and `jobs`; afterwards wait until all jobs have ended,
        print, and let the audit say that every law holds."""
        fault = Fault(name, note=note, injected=time.monotonic())
        self.decoded()
        yield fault
        until(lambda: self.ended(fault.jobs), f"all jobs ended after {name}")
        fault.recovered = time.monotonic()
        self.disarm()
        counts = self.decoded()
        fault.decoded, fault.repeated = counts.total(), counts.total() - len(counts)
        states = Counter(self.job(job_id).state.value for job_id in fault.jobs)
        fault.states = ", ".join(f"{number} {state}" for state, number in sorted(states.items()))
        fault.show()
        self.assert_lawful(fault)

    def assert_done(self, jobs: Iterable[str]) -> None:
        for job_id in jobs:
            job = self.job(job_id)
            assert job.state is JobState.DONE, (job.state, job.error_code, job.error_message)
            assert job.coverage == 1.0
            assert job.words, "the tones are heard"

    def assert_lawful(self, fault: Fault) -> None:
        report = self.audit()
        assert report.clean, (fault.name, report.breaches)

    def audit(self) -> AuditReport:
        return audit(self.db, self.objects, Patience(grace_seconds=30.0))


def gone(process: "subprocess.Popen[bytes]") -> None:
    """Wait until it was killed."""
    until(lambda: process.poll() is not None, "the process died")
    assert process.returncode == -signal.SIGKILL
    assert not alive(process.pid)
