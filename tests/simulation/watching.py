"""A watched folder and a watched bucket: what comes into them, in part slowly or twice, becomes one job."""

import hashlib
from collections import Counter
from functools import partial
from pathlib import Path

from spool import clock
from spool.store.archive.sources import create_source
from spool.store.database import Database
from spool.tables.sources import NewSource
from tests.simulation.database import Observer
from tests.simulation.fleet import Fleet
from tests.simulation.load import LENGTHS, number_bytes, recording
from tests.simulation.objects import Objects, etag_of
from tests.simulation.timeline import Timeline

FOLDER, BUCKET = "watched", "archive"
EVERY_S, SETTLE_S = 60.0, 30.0
SLOWEST_S = 28.0
"""How long a file may take to be written; it must be shorter than `SETTLE_S`."""
SLOW = 0.6
REPLACED = 0.2
"""How many objects take the place of another."""
OPTIONS = {"model": "simulated", "speech_detector": False}


class WatchedFolder:
    """Somebody who puts files into a folder of the share, one by one."""

    def __init__(self, fleet: Fleet, timeline: Timeline, files_an_hour: float) -> None:
        self._fleet, self._timeline, self._files_an_hour = fleet, timeline, files_an_hour
        self._random = fleet.scheduler.random
        self._folder = fleet.share / FOLDER
        self._folder.mkdir()
        self._written: list[Path] = []

    def watch(self, database: Database) -> None:
        """Have Spool watch the folder."""
        _watch(database, "oral", "tapes", f"{self._folder.as_uri()}/", SETTLE_S)

    def run(self) -> None:
        """Write files until there is to be no more load."""
        scheduler = self._fleet.scheduler
        while True:
            scheduler.sleep(self._random.expovariate(self._files_an_hour / 3600))
            if self._fleet.calm:
                return
            path = self._folder / f"tape-{len(self._written)}.wav"
            if self._folder.exists():
                self._written.append(path)
                scheduler.spawn(
                    self._fleet.outside, path.name, partial(self._write, path, len(self._written))
                )

    def _write(self, path: Path, number: int) -> None:
        data = recording("good", self._random.choice(LENGTHS), 14)[:-2] + number_bytes(number)
        with path.open("wb") as file:  # whoever writes goes on though the share is away from Spool
            if self._random.random() < SLOW:
                file.write(data[: len(data) // 2])
                file.flush()
                self._fleet.scheduler.sleep(self._random.uniform(1, SLOWEST_S))
                data = data[len(data) // 2 :]
            file.write(data)
        self._timeline.note(f"{path.name} is in the watched folder")

    def is_taken(self, observer: Observer) -> bool:
        """Whether each file has become a job."""
        return all(number for _, number in self._count_jobs(observer))

    def check(self, observer: Observer) -> None:
        """Whether each file became one job."""
        for path, number in self._count_jobs(observer):
            if number != 1:
                self._timeline.violate("a file becomes one job", f"{path.name} became {number}")

    def _count_jobs(self, observer: Observer) -> list[tuple[Path, int]]:
        query = "SELECT source_uri, count(*) FROM jobs WHERE source_kind = 'file' GROUP BY source_uri"
        jobs = dict(observer.rows(query))
        return [(path, jobs.get(path.as_uri(), 0)) for path in self._written]


class WatchedBucket:
    """Somebody who puts recordings into a bucket, and at times another one in the place of the first."""

    def __init__(self, fleet: Fleet, objects: Objects, timeline: Timeline, files_an_hour: float) -> None:
        self._fleet, self._objects, self._timeline = fleet, objects, timeline
        self._files_an_hour = files_an_hour
        self._random = fleet.scheduler.random
        self._put: dict[str, list[str]] = {}
        """The ETags of each object, the present one last."""
        self._number = 0

    def watch(self, database: Database) -> None:
        """Have Spool watch the bucket."""
        _watch(database, "court", "sessions", f"s3://{BUCKET}/", 0)

    def run(self) -> None:
        """Put objects there until there is to be no more load."""
        scheduler = self._fleet.scheduler
        while True:
            scheduler.sleep(self._random.expovariate(self._files_an_hour / 3600))
            if self._fleet.calm:
                return
            if self._put and self._random.random() < REPLACED:
                key = self._random.choice(sorted(self._put))
            else:
                key = f"session-{len(self._put)}.wav"
            self._number += 1
            length = self._random.choice(LENGTHS[:4])
            data = recording("good", length, 16)[:-2] + number_bytes(self._number)
            sha256 = hashlib.sha256(data).hexdigest()
            self._objects.stored[key] = data, clock.now(), sha256
            self._put.setdefault(key, []).append(etag_of(sha256))
            self._timeline.note(f"{key} is in the watched bucket, version {len(self._put[key])}")

    def excuses(self, source: str | None, etag: str | None, code: str) -> bool:
        """Whether a job of this object may fail so: the object has changed since."""
        key = str(source).removeprefix(f"s3://{BUCKET}/")
        return code == "source_changed" and key in self._put and etag != self._put[key][-1]

    def is_taken(self, observer: Observer) -> bool:
        """Whether the present version of each object has become a job."""
        jobs = self._count_jobs(observer)
        return all(jobs[key, etags[-1]] for key, etags in self._put.items())

    def check(self, observer: Observer) -> None:
        """Whether each version became one job at most, and the last one did."""
        jobs = self._count_jobs(observer)
        for (key, etag), number in sorted(jobs.items()):
            if etag not in self._put.get(key, ()) or number > 1:
                what = f"a version of {key} became {number} jobs"
                self._timeline.violate("a version of an object becomes one job", what)
        for name, error in observer.rows("SELECT name, error FROM sources WHERE error IS NOT NULL"):
            self._timeline.note(f"the source {name} cannot be listed: {error}")
        for key, etags in self._put.items():
            if not jobs[key, etags[-1]]:
                what = f"version {len(etags)} of {key} became no job"
                self._timeline.violate("a version of an object becomes one job", what)

    @staticmethod
    def _count_jobs(observer: Observer) -> Counter[tuple[str, str]]:
        query = (
            "SELECT source_uri, source_etag, count(*) FROM jobs WHERE source_kind = 's3'"
            " GROUP BY source_uri, source_etag"
        )
        rows = observer.rows(query)
        return Counter({(uri.removeprefix(f"s3://{BUCKET}/"), etag): number for uri, etag, number in rows})


def _watch(database: Database, project: str, name: str, address: str, settle_s: float) -> None:
    new = NewSource(
        project=project,
        name=name,
        address=address,
        request={"options": OPTIONS, "project": project},
        every_seconds=EVERY_S,
        settle_seconds=settle_s,
    )
    with database.begin() as tx:
        create_source(tx, new)
