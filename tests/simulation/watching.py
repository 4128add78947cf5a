"""A watched folder: files come into it, some of them slowly, and each becomes one job."""

from functools import partial
from pathlib import Path

from spool.store.archive.sources import create_source
from spool.store.database import Database
from spool.tables.sources import NewSource
from tests.simulation.database import Observer
from tests.simulation.fleet import Fleet
from tests.simulation.load import LENGTHS, number_bytes, recording
from tests.simulation.timeline import Timeline

FOLDER = "watched"
EVERY_S, SETTLE_S = 60.0, 30.0
SLOWEST_S = 28.0
"""How long a file may take to be written; it must be shorter than `SETTLE_S`."""
SLOW = 0.6


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
        request = {"options": {"model": "simulated", "speech_detector": False}, "project": "oral"}
        new = NewSource(
            project="oral",
            name="tapes",
            address=f"{self._folder.as_uri()}/",
            request=request,
            every_seconds=EVERY_S,
            settle_seconds=SETTLE_S,
        )
        with database.begin() as tx:
            create_source(tx, new)

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
