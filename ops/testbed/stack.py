"""A whole Spool as processes over real servers, the faults done to it, and what must hold afterwards."""

import itertools
import json
import os
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

import httpx
from pydantic import JsonValue

from ops.testbed import waiting
from ops.testbed.counting_model import LIST, decodings
from ops.testbed.jobs import speechlike, write_wav
from ops.testbed.processes import ROOT, Fleet, alive
from ops.testbed.waiting import DEADLINE, PATIENCE
from spool.audit.rules import Grace
from spool.audit.runner import AuditReport, audit
from spool.broker.embedded_redis import EmbeddedRedis
from spool.domain.archive.alignment import Typescript
from spool.domain.archive.diarization import Diarization
from spool.domain.jobs import JobState, Source
from spool.domain.options import JobOptions
from spool.failpoints import FIRED, VARIABLE
from spool.ids import new_id
from spool.objects import object_store
from spool.store.jobs import NewJob, create_job

LOG = "SPOOL_FAULTS_LOG"  # a file to add what was measured to; the table in docs/faults.md is made from it
TOLD = ("name", "states", "note", "seconds", "repeated", "decoded")
_levels = itertools.count(1)


def until(condition: Callable[[], object], what: str = "the condition") -> None:
    """Wait for it, with patience for a slow machine."""
    waiting.until(condition, what, PATIENCE)


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
                entry = {name: getattr(self, name) for name in TOLD}
                log.write(json.dumps(entry) + "\n")


TOKEN = "token-of-the-testbed"
HEADERS = {"Authorization": f"Bearer {TOKEN}"}
"""What a request to the API of a `Stack` needs."""


class Stack(Fleet):
    """A `Fleet` with an API, failpoints, and an audit at the end of each fault."""

    def __init__(
        self,
        home: Path,
        database_url: str,
        redis: EmbeddedRedis,
        *,
        models: Mapping[str, str] | None = None,
        recordings: Path | None = None,
        **environment: str,
    ) -> None:
        self.redis = redis
        self.plan = home / "failpoints"
        self.fired_folder = home / "fired"
        self.decoded_list = home / "decoded"
        self.fired_folder.mkdir(parents=True)
        self.decoded_list.touch()
        gate = home / "gate"
        self.gate = gate
        scripts = {"plain": "plain", "gated": f"gate={gate}", "slow": "sleep=0.2", "fresh": "fresh"}
        scripts |= models or {}
        told = {
            "SPOOL_MODELS": ",".join(f"{name}={script}" for name, script in scripts.items()),
            "SPOOL_DEFAULT_MODEL": "plain",
            "SPOOL_SPEECH_DETECTOR": "false",  # the recordings are tones
            "SPOOL_COMPUTE_TYPE": "float32",  # an idle worker would measure its models, and then change them
            "SPOOL_API_TOKEN": TOKEN,
            "SPOOL_MAX_BATCH": "2",
            "SPOOL_MAX_CRASHES": "5",
            "SPOOL_LEASE_SECONDS": "4",  # long enough that a busy machine loses none by being slow
            "SPOOL_MAX_CLOCK_SKEW_SECONDS": "7200",
            "SPOOL_UNWELL_RETRY_SECONDS": "1",
            "SPOOL_DISK_FLOOR_BYTES": "0",
            "SPOOL_SOURCE_ROOTS": str(home),
            VARIABLE: f"@{self.plan}",
            FIRED: str(self.fired_folder),
            LIST: str(self.decoded_list),
        }
        redis_url = environment.pop("SPOOL_REDIS_URL", redis.url)
        super().__init__(home, database_url, redis_url, **{**told, **environment})
        self.objects = object_store(self.settings)
        self.log: Path | None = None
        self.recordings = recordings or home
        self._apis: dict[str, subprocess.Popen[bytes]] = {}
        self._read = 0

    # --- processes ------------------------------------------------------------------------------------------

    def worker(self, name: str = "alpha", **told: str) -> "subprocess.Popen[bytes]":
        """A running worker of this name: the one there is, else a new one."""
        for process in self._workers:
            if process.poll() is None and self._name_of(process) == name:
                return process
        process = self.launch(name, **told)
        until(lambda: process.poll() is not None or self.is_ready(process), "the worker ready")
        assert process.poll() is None, "the worker ended while it started"
        return process

    def launch(self, name: str, **told: str) -> "subprocess.Popen[bytes]":
        """A worker that is not waited for, since it will not live long or has time."""
        process = self._spawn("-m", "ops.testbed.run.faulty_worker", SPOOL_WORKER_NAME=name, **told)
        self._workers.append(process)
        return process

    def is_ready(self, process: "subprocess.Popen[bytes]") -> bool:
        """Whether this worker takes jobs."""
        return self._is(process.pid, "ready")

    def _spawn(self, *command: str, **told: str) -> "subprocess.Popen[bytes]":
        kept = {key: value for key, value in os.environ.items() if not key.startswith("SPOOL_")}
        log = self.log.open("ab") if self.log is not None else None
        process = subprocess.Popen(
            [*self.prefix, sys.executable, *command],
            env={**kept, **self.environment, **told},
            cwd=ROOT,
            stdout=log,
            stderr=log,
        )
        if log is not None:
            log.close()
        return process

    def _name_of(self, process: "subprocess.Popen[bytes]") -> str:
        return next((w.name for w in self.workers() if w.pid == process.pid), "")

    def _known_or_gone(self, process: "subprocess.Popen[bytes]") -> bool:
        return process.poll() is not None or bool(self._name_of(process))

    def stop_workers(self) -> None:
        """Drain every worker that still runs."""
        running = [process for process in self._workers if process.poll() is None]
        for process in running:
            process.send_signal(signal.SIGCONT)
            # One that was launched a moment ago cannot drain before it listens to signals.
            until(partial(self._known_or_gone, process), "a worker known")
            process.send_signal(signal.SIGTERM)
        for process in running:
            assert process.wait(PATIENCE) == 0, "a worker drains with 0"

    def serve(self, name: str = "api", *, port: int = 0, **told: str) -> str:
        """The address of a running API: the one of this name, else a new one."""
        announced = self.home / f"{name}.json"
        process = self._apis.get(name)
        if process is None or process.poll() is not None:
            process = self.launch_api(name, port=port, **told)
        until(lambda: announced.exists() or process.poll() is not None, "the API listens")
        return str(json.loads(announced.read_text())["url"])

    def launch_api(self, name: str = "api", *, port: int = 0, **told: str) -> "subprocess.Popen[bytes]":
        """A new API of this name that is not waited for."""
        announced = self.home / f"{name}.json"
        announced.unlink(missing_ok=True)
        command = ("serve", "--port", str(port), "--announce", str(announced))
        process = self._spawn("-m", "ops.testbed.run.faulty_api", *command, **told)
        self._apis[name] = process
        return process

    @property
    def api(self) -> "subprocess.Popen[bytes]":
        return self.api_of("api")

    def api_of(self, name: str) -> "subprocess.Popen[bytes]":
        return self._apis[name]

    def stop_apis(self) -> None:
        """Stop every API that still runs."""
        running = [process for process in self._apis.values() if process.poll() is None]
        for process in running:
            process.send_signal(signal.SIGCONT)
            process.terminate()
        for process in running:
            assert process.wait(PATIENCE) == 0, "an API stops with 0"

    def submit_stored(
        self,
        path: Path,
        model: str = "plain",
        diarization: Diarization | None = None,
        typescript: Typescript | None = None,
        **fields: JsonValue,
    ) -> str:
        """A job whose recording is an upload in the object store, as the API would have left it."""
        job_id = new_id("job")
        stored = self.objects.put_file(f"jobs/{job_id}/source", path)
        source = Source("upload", stored.key, stored.size, stored.etag)
        asked = {"model": model, "diarization": diarization, "speech_detector": False, **fields}
        options = JobOptions.model_validate(asked | {"align": typescript and typescript.kept})
        with self.db.begin() as tx:
            new = NewJob(source, options, path.name, id=job_id, typescript=typescript)
            return create_job(tx, new)[0].id

    def upload(self, path: Path, key: str, model: str = "plain") -> str:
        """Submit a recording over HTTP; its job's id."""
        answer = post_upload(self.serve(), path, key, model)
        assert answer.status_code in {200, 202}, answer.text
        return str(answer.json()["id"])

    def close(self) -> None:
        for process in self._workers:
            if process.poll() is None:
                process.send_signal(signal.SIGCONT)
        for process in self._apis.values():
            if process.poll() is None:
                process.send_signal(signal.SIGCONT)
                process.terminate()
                process.wait(DEADLINE)
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
        return write_wav(self.recordings / f"{number}.wav", speechlike(seconds, 0.2 + number / 1000))

    def decoded(self) -> Counter[str]:
        """How often each utterance was given to the model since the last call."""
        lines = decodings(self.decoded_list.read_text())
        new, self._read = lines[self._read :], len(lines)
        return Counter(decoding.digest for decoding in new)

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
        return audit(self.db, self.objects, Grace(grace_seconds=30.0))


def in_the_middle(stack: Stack, jobs: int = 3, seconds: float = 200) -> list[str]:
    """Jobs of which one chunk each is saved, and many are not."""
    recordings = [stack.record(seconds) for _ in range(jobs)]
    job_ids = [stack.submit_stored(recording, "slow") for recording in recordings]
    until(lambda: all(stack.chunks(job_id) for job_id in job_ids), "a chunk of each saved")
    assert not stack.ended(job_ids)
    return job_ids


def post_upload(url: str, path: Path, key: str, model: str = "plain") -> httpx.Response:
    """Submit a recording to the API at `url` under this idempotency key."""
    with httpx.Client(timeout=60, trust_env=False) as client, path.open("rb") as file:
        return client.post(
            f"{url}/v1/jobs",
            headers={**HEADERS, "Idempotency-Key": key},
            data={"request": json.dumps({"options": {"model": model}})},
            files={"file": (path.name, file, "audio/wav")},
        )


def gone(process: "subprocess.Popen[bytes]") -> None:
    """Wait until it was killed."""
    until(lambda: process.poll() is not None, "the process died")
    assert process.returncode == -signal.SIGKILL
    assert not alive(process.pid)
