"""What a soak submits, and the submitters: recordings like no other, over HTTP, until each is accepted.

A submitter is a client as it should be: it asks again under the same idempotency key after every error, and
remembers which job each key was answered with. Half of the short recordings are uploaded one by one, half
are named in manifests. Knows nothing of faults.
"""

import json
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor, as_completed
from dataclasses import dataclass, field
from pathlib import Path

import httpx
import numpy as np
import soundfile
from numpy.typing import NDArray

from ops.testbed.stack import HEADERS

RATE = 16_000
LINES = 50  # a manifest
PASSING = {409, 429, 503, 507}  # a 500 is a defect, whatever is being broken
SPEECH = Path(__file__).parents[2] / "samples" / "demo-tdt"


@dataclass(frozen=True, slots=True)
class Recording:
    """A file to be transcribed, and whether it is one of the long ones."""

    path: Path
    seconds: float
    long: bool


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
    """Submits `recordings` to the API at `url`; `jobs` maps each key to its job once it is accepted."""

    url: str
    model: str
    recordings: list[Recording]
    jobs: dict[str, str] = field(default_factory=dict)
    batches: dict[str, str] = field(default_factory=dict)
    lines: int = 0
    again: int = 0
    broken: list[str] = field(default_factory=list)
    ended: threading.Event = field(default_factory=threading.Event)
    stop: threading.Event = field(default_factory=threading.Event)
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def start(self, threads: int = 4) -> None:
        """Submit in the background."""
        threading.Thread(target=self._submit, args=(threads,), daemon=True).start()

    def _submit(self, threads: int) -> None:
        long = [one for one in self.recordings if one.long]
        short = [one for one in self.recordings if not one.long]
        named, uploaded = short[::2], short[1::2]
        manifests = [named[first : first + LINES] for first in range(0, len(named), LINES)]
        with ThreadPoolExecutor(threads) as pool:
            tasks = [pool.submit(self._upload, one) for one in long]
            each = max(1, len(uploaded) // max(1, len(manifests)))
            for number, manifest in enumerate(manifests):
                tasks.append(pool.submit(self._manifest, number, manifest))
                last = None if number + 1 == len(manifests) else (number + 1) * each
                tasks += [pool.submit(self._upload, one) for one in uploaded[number * each : last]]
            for task in as_completed(tasks):
                error = task.exception()
                if error is not None:
                    self.broken.append(repr(error))
                    self.stop.set()
        self.ended.set()

    def _upload(self, recording: Recording) -> None:
        key = recording.path.stem
        data = recording.path.read_bytes()
        request = json.dumps({"options": self._options()})
        files = {"file": (recording.path.name, data, "audio/wav")}
        answer = self._until_accepted("/v1/jobs", key, data={"request": request}, files=files)
        with self._lock:
            self.jobs[key] = str(answer["id"])

    def _manifest(self, number: int, lines: list[Recording]) -> None:
        key = f"manifest-{number}"
        written = [json.dumps({"source": one.path.as_uri(), "custom_id": one.path.stem}) for one in lines]
        request = json.dumps({"name": key, "options": self._options()})
        answer = self._until_accepted(
            "/v1/batches",
            key,
            content="\n".join(written).encode(),
            params={"request": request},
            headers={"Content-Type": "application/x-ndjson"},
        )
        with self._lock:
            self.batches[key] = str(answer["id"])
            self.lines += len(lines)

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
            if self.stop.wait(0.3):
                raise RuntimeError(f"{path} {key}: not accepted by the end")
