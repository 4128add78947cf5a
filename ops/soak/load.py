"""What a soak submits, and its clients: recordings, no two alike, over HTTP, until each is accepted.

A submitter repeats a request under the same idempotency key after every error, and remembers which job each
key was answered with. Half of the short recordings are uploaded one by one, half are named in manifests; one
in eight is submitted a second time as another job. A reader fetches transcripts meanwhile and keeps the
digest of each.
"""

import contextlib
import hashlib
import json
import random
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

import httpx
import numpy as np
import soundfile
from numpy.typing import NDArray

from ops.testbed.stack import HEADERS

RATE = 16_000
LINES = 10  # a manifest
TWINS_EACH = 8
PASSING = {409, 429, 503, 507}  # a 500 is a defect, whatever is being broken
READABLE = PASSING | {200}
SPEECH = Path(__file__).parents[2] / "samples" / "demo-tdt"


@dataclass(frozen=True, slots=True)
class Recording:
    """A file to be transcribed, and whether it is one of the long ones. `twin`: of which it is a copy."""

    path: Path
    seconds: float
    long: bool
    twin: str = ""

    @property
    def key(self) -> str:
        """The name of its job, and its idempotency key."""
        return self.path.stem


def recordings(folder: Path, jobs: int, long: int, long_seconds: float, seed: int) -> Iterator[Recording]:
    """`jobs` of 3 to 8 s and `long` of `long_seconds`: excerpts of the samples, each with its own noise."""
    dice = np.random.default_rng(seed)
    speech = _speech()
    folder.mkdir(parents=True, exist_ok=True)
    every = max(1, jobs // max(long, 1))
    for number in range(jobs):
        if long and number % every == 0 and number // every < long:
            yield _written(folder / f"long-{number // every}.wav", speech, long_seconds, dice, long=True)
        yield _written(folder / f"short-{number}.wav", speech, dice.uniform(3, 8), dice)


def endless_recordings(folder: Path, long_each: int, long_seconds: float, seed: int) -> Iterator[Recording]:
    """The same without end: one in `long_each` is long, one in `TWINS_EACH` of the others comes again."""
    dice = np.random.default_rng(seed)
    speech = _speech()
    folder.mkdir(parents=True, exist_ok=True)
    number = 0
    while True:
        if number % long_each == 0:
            yield _written(folder / f"long-{number}.wav", speech, long_seconds, dice, long=True)
        recording = _written(folder / f"short-{number}.wav", speech, dice.uniform(3, 8), dice)
        if number % TWINS_EACH == 0:
            twin = folder / f"twin-{number}.wav"
            twin.write_bytes(recording.path.read_bytes())
            yield Recording(twin, recording.seconds, long=False, twin=recording.key)
        yield recording
        number += 1


def _speech() -> NDArray[np.float32]:
    recordings = [soundfile.read(path, dtype="float32") for path in sorted(SPEECH.glob("digits/*.flac"))]
    assert recordings, "the samples are there"
    assert all(rate == RATE for _, rate in recordings)
    pause = np.zeros(RATE // 2, np.float32)
    return np.concatenate([part for samples, _ in recordings for part in (samples, pause)])


def _written(
    path: Path, speech: NDArray[np.float32], seconds: float, dice: np.random.Generator, *, long: bool = False
) -> Recording:
    length = int(seconds * RATE)
    start = int(dice.integers(len(speech)))
    excerpt = np.resize(np.roll(speech, -start), length) * dice.uniform(0.5, 0.9)
    excerpt = excerpt + dice.normal(0, 1e-3, length)
    soundfile.write(path, np.clip(excerpt, -0.99, 0.99).astype(np.float32), RATE, subtype="PCM_16")
    return Recording(path, length / RATE, long)


@dataclass
class Load:
    """Submits `recordings` to the API at `url` until stopped, while fewer than `most_open` are open; each
    of its threads at most `rate` a second. `jobs` maps a key to its job once that is accepted, `submitted` to
    the digest of its recording; `served` has the digests of each transcript as it was answered."""

    url: str
    model: str
    recordings: Iterator[Recording]
    ended: Callable[[], int]
    most_open: int = 40
    rate: float = 4.0
    jobs: dict[str, str] = field(default_factory=dict)
    submitted: dict[str, str] = field(default_factory=dict)
    twins: dict[str, str] = field(default_factory=dict)
    served: dict[str, set[str]] = field(default_factory=dict)
    unread: int = 0
    audio_seconds: float = 0.0
    again: int = 0
    broken: list[str] = field(default_factory=list)
    stop: threading.Event = field(default_factory=threading.Event)
    """Submit nothing more; what was begun is still seen through."""
    abort: threading.Event = field(default_factory=threading.Event)
    _turns: int = 0
    _lock: threading.Lock = field(default_factory=threading.Lock)
    _threads: list[threading.Thread] = field(default_factory=list)

    def start(self, threads: int = 3) -> None:
        """Submit and read in the background."""
        work = [self._submit] * threads + [self._read]
        self._threads = [threading.Thread(target=self._guarded, args=(one,), daemon=True) for one in work]
        for thread in self._threads:
            thread.start()

    def is_over(self) -> bool:
        """Whether all that was begun has been accepted."""
        return self.stop.is_set() and not any(thread.is_alive() for thread in self._threads)

    def _guarded(self, work: Callable[[], None]) -> None:
        try:
            work()
        except Exception as error:  # noqa: BLE001 - the soak's own thread says so and ends
            self.broken.append(repr(error))
            self.stop.set()
            self.abort.set()

    def _submit(self) -> None:
        while not self.stop.is_set():
            if len(self.submitted) - self.ended() >= self.most_open:
                self.stop.wait(0.2)
                continue
            with self._lock:
                first = self._next()
                self._turns += 1
                is_manifest = self._turns % LINES == 0 and not first.long
                named = [self._next() for _ in range(LINES - 1)] if is_manifest else []
            began = time.monotonic()
            if named:
                self._manifest([first, *named])
            else:
                self._upload(first)
            self.stop.wait(max(0.0, (1 + len(named)) / self.rate - (time.monotonic() - began)))

    def _next(self) -> Recording:
        recording = next(self.recordings)
        self.submitted[recording.key] = hashlib.sha256(recording.path.read_bytes()).hexdigest()
        self.audio_seconds += recording.seconds
        if recording.twin:
            self.twins[recording.key] = recording.twin
        return recording

    def _upload(self, recording: Recording) -> None:
        data = recording.path.read_bytes()
        request = json.dumps({"options": self._options()})
        files = {"file": (recording.path.name, data, "audio/wav")}
        answer = self._until_accepted("/v1/jobs", recording.key, data={"request": request}, files=files)
        self.jobs[recording.key] = str(answer["id"])
        recording.path.unlink()

    def _manifest(self, lines: list[Recording]) -> None:
        key = f"manifest-{lines[0].key}"
        written = [json.dumps({"source": one.path.as_uri(), "custom_id": one.key}) for one in lines]
        request = json.dumps({"name": key, "options": self._options(), "reuse": False})
        self._until_accepted(
            "/v1/batches",
            key,
            content="\n".join(written).encode(),
            params={"request": request},
            headers={"Content-Type": "application/x-ndjson"},
        )

    def _read(self) -> None:
        """Fetch transcripts of jobs, ended or not, one after the other."""
        dice = random.Random(0)
        while not self.stop.wait(0.1):
            jobs = list(self.jobs.values())
            if not jobs:
                continue
            job_id = dice.choice(jobs)
            with contextlib.suppress(httpx.HTTPError):
                url = f"{self.url}/v1/jobs/{job_id}/transcript"
                answer = httpx.get(url, headers=HEADERS, timeout=60, trust_env=False)
                if answer.status_code not in READABLE:
                    raise RuntimeError(f"{url}: {answer.status_code} {answer.text[:300]}")
                if answer.status_code == httpx.codes.OK:
                    self.served.setdefault(job_id, set()).add(hashlib.sha256(answer.content).hexdigest())
                else:
                    self.unread += 1

    def _options(self) -> dict[str, str]:
        return {"model": self.model, "decoder": "greedy"}

    def _until_accepted(self, path: str, key: str, **request: object) -> dict[str, object]:
        headers = {**HEADERS, "Idempotency-Key": key, **request.pop("headers", {})}  # type: ignore[dict-item]
        while True:
            try:
                with httpx.Client(base_url=self.url, timeout=60, trust_env=False) as client:
                    answer = client.post(path, headers=headers, **request)  # type: ignore[arg-type]
            except httpx.HTTPError:
                answer = None
            if answer is not None and answer.status_code in {200, 202}:
                body: dict[str, object] = answer.json()
                return body
            if answer is not None and answer.status_code not in PASSING:
                raise RuntimeError(f"{path} {key}: {answer.status_code} {answer.text[:300]}")
            with self._lock:
                self.again += 1
            if self.abort.wait(0.3):
                raise RuntimeError(f"{path} {key}: not accepted by the end")
