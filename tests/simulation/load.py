"""The recordings of a simulation, and the people who submit, cancel and retry jobs."""

import io
import wave
from collections.abc import Callable
from functools import lru_cache, partial
from pathlib import Path

import numpy as np
import soundfile
from numpy.typing import NDArray

from spool import failpoints
from spool.domain.archive.outputs import JobOutput
from spool.domain.jobs import Source
from spool.domain.options import AskedOptions
from spool.errors import SpoolError, StorageError
from spool.ids import new_id
from spool.store.jobs import NewJob, cancel_job, create_job, retry_job
from tests.simulation.engine import POISON, RATE
from tests.simulation.exports import BUCKET, make_output
from tests.simulation.fleet import Fleet, RunningApi
from tests.simulation.history import Expected, History
from tests.simulation.shares import PROJECTS, WEIGHTS
from tests.simulation.timeline import Timeline

DESERVED = {
    "good": frozenset[str](),
    "text": frozenset({"audio_unreadable"}),
    "poison": frozenset({"engine_crashed", "poison"}),
}
LENGTHS = (3, 8, 20, 45, 90, 180)
BURSTS = (1, 1, 2, 4, 12, 30)
MEAN_BURST = sum(BURSTS) / len(BURSTS)
BACKLOG = 12
"""The jobs of the first burst, so that a short run has work too."""
FIRST_BURST = 5.0
"""Seconds from the start of a run to its first burst."""
CHANGES = 0.4
"""For each job that is submitted, how often a person cancels or retries one."""
LEVELS = (10, 13)
COPIES = 0.1
"""How many uploads have the content of another, by chance."""
EXPORTED = 0.5
"""How many transcripts are to be written elsewhere, too."""
SHARED = 24
"""Recordings on the share."""


@lru_cache(256)
def recording(kind: str, seconds: int, level: int) -> bytes:
    """A recording's bytes: bursts of a tone, which are cut into chunks at their pauses."""
    if kind == "text":
        return b"This is not a recording.\n" * (10 + level)
    t = np.arange(4 * RATE, dtype=np.float32) / RATE
    burst = (0.01 * level * (t < 3.5) * np.sin(2 * np.pi * 220 * t)).astype(np.float32)
    pcm = _as_pcm(np.append(burst, np.float32(POISON)))
    samples = np.resize(pcm[:-1], seconds * RATE)
    if kind == "poison":
        samples[len(samples) // 2] = pcm[-1]
    file = io.BytesIO()
    with wave.open(file, "wb") as wav:
        wav.setparams((1, 2, RATE, len(samples), "NONE", ""))
        wav.writeframes(samples.tobytes())
    return file.getvalue()


def _as_pcm(samples: NDArray[np.float32]) -> NDArray[np.int16]:
    """As a writer of 16-bit files rounds them."""
    file = io.BytesIO()
    soundfile.write(file, samples, RATE, format="WAV", subtype="PCM_16")
    file.seek(0)
    pcm: NDArray[np.int16] = soundfile.read(file, dtype="int16")[0]
    return pcm


def number_bytes(number: int) -> bytes:
    """A last sample that sets a recording apart from all others."""
    return (number % 30_000).to_bytes(2, "little")


def fill_share(folder: Path) -> None:
    """Put recordings on the share."""
    folder.mkdir(parents=True)
    for number in range(SHARED):
        (folder / f"tape-{number}.wav").write_bytes(recording("good", LENGTHS[number % 5], 10 + number))


class Load:
    """Submits jobs until it is told to stop."""

    def __init__(
        self, fleet: Fleet, history: History, timeline: Timeline, share: Path, jobs_an_hour: float
    ) -> None:
        self._fleet, self._history, self._timeline = fleet, history, timeline
        self._share, self._jobs_an_hour = share, jobs_an_hour
        self._random = fleet.scheduler.random
        self._requests = 0

    def run(self) -> None:
        """Submit jobs."""
        burst = BACKLOG
        wait = FIRST_BURST
        while True:
            self._fleet.scheduler.sleep(wait)
            if self._fleet.calm:
                return
            if (api := self._fleet.choose_api()) is not None:
                self._submit_burst(api, burst)
            burst = self._random.choice(BURSTS)
            wait = self._random.expovariate(self._jobs_an_hour / MEAN_BURST / 3600)

    def change(self) -> None:
        """Now and then cancel or retry a job."""
        while True:
            self._fleet.scheduler.sleep(self._random.expovariate(self._jobs_an_hour * CHANGES / 3600))
            if self._fleet.calm:
                return
            if self._history.submitted and (api := self._fleet.choose_api()) is not None:
                self._change_one(api)

    def submit_one(self) -> str:
        """Submit a recording that can be transcribed, and return the job's id, which is not there yet."""
        api = self._fleet.choose_api()
        assert api is not None
        number, self._requests = self._requests, self._requests + 1
        job_id = new_id("job")
        self._history.expected[job_id] = Expected(f"job {number}")
        data = recording("good", LENGTHS[1], LEVELS[0])[:-2] + number_bytes(number)

        def submit() -> None:
            info = api.objects.put_bytes(f"jobs/{job_id}/source", data)
            source = Source("upload", info.key, info.size)
            with api.database.begin() as tx:
                create_job(tx, self._new_job(job_id, number, source, info.sha256, PROJECTS[0]))
            api.sweeper.wake()

        self._fleet.scheduler.spawn(api.process, f"request-{number}", submit)
        return job_id

    def _submit_burst(self, api: RunningApi, size: int) -> None:
        for number in range(self._requests, self._requests + size):
            self._fleet.scheduler.spawn(api.process, f"request-{number}", partial(self._submit, api, number))
        self._requests += size

    def _submit(self, api: RunningApi, number: int) -> None:
        job_id = new_id("job")
        kind = self._random.choices(["good", "text", "poison"], [94, 3, 3])[0]
        self._history.expected[job_id] = Expected(f"job {number}", DESERVED[kind])
        try:
            source, sha256 = self._make_source(api, job_id, kind, number)
            failpoints.failpoint("create.stored")
            with api.database.begin() as tx:
                project = self._random.choices(PROJECTS, list(WEIGHTS.values()))[0]
                create_job(tx, self._new_job(job_id, number, source, sha256, project))
        except StorageError:
            return  # the client does not know whether the job is there
        self._timeline.note(f"job {number} accepted: {kind}, {source.kind}")
        failpoints.failpoint("create.committed")
        api.sweeper.wake()

    def _make_source(self, api: RunningApi, job_id: str, kind: str, number: int) -> tuple[Source, str | None]:
        if kind == "good" and self._random.random() < 0.3:
            path = self._share / f"tape-{self._random.randrange(SHARED)}.wav"
            return Source("file", path.as_uri(), None), None
        data = recording(kind, self._random.choice(LENGTHS), self._random.randint(*LEVELS))
        if kind == "good" and self._random.random() > COPIES:
            data = data[:-2] + number_bytes(number)
        info = api.objects.put_bytes(f"jobs/{job_id}/source", data)
        return Source("upload", info.key, info.size), info.sha256

    def _new_job(self, job_id: str, number: int, source: Source, sha256: str | None, project: str) -> NewJob:
        asked = AskedOptions.model_validate({"model": "simulated", "speech_detector": False})
        return NewJob(
            source,
            asked.job_options(),
            f"recording-{number}.wav",
            id=job_id,
            received_sha256=sha256,
            reuse=self._random.random() < 0.3,
            project=project,
            output=self._make_output(project, number) if self._random.random() < EXPORTED else None,
        )

    def _make_output(self, project: str, number: int) -> JobOutput:
        root = self._random.choice([BUCKET, f"{self._fleet.exported.as_uri()}/"])
        return make_output(root, project, number)

    def _change_one(self, api: RunningApi) -> None:
        """Ask for a change of a job, mostly of one that runs or did not succeed."""
        running = sorted(self._history.running)
        retried = sorted(job for job, state in self._history.ended.items() if state != "done")
        if running and self._random.random() < 0.5:
            job, change = self._random.choice(running), cancel_job
        elif self._random.random() < 0.2:
            job, change = self._random.choice(self._history.submitted[-20:]), cancel_job
        else:
            job, change = self._random.choice(retried or self._history.submitted), retry_job
        self._fleet.scheduler.spawn(api.process, "change", partial(self._change, api, job, change))

    def cancel(self, job: str) -> None:
        """A person asks to cancel the job."""
        if (api := self._fleet.choose_api()) is not None:
            self._change(api, job, cancel_job)

    def _change(self, api: RunningApi, job: str, change: Callable[..., object]) -> None:
        self._history.changed_by_people.add(job)
        try:
            with api.database.begin() as tx:
                change(tx, job)
        except SpoolError:
            return
        self._timeline.note(f"{self._history.expected[job].name}: a person asked for {change.__name__}")
        api.sweeper.wake()
