"""Transcripts promised elsewhere, in a bucket or a folder: where jobs write them, and the law over them.

Each promised file is there exactly once, with the bytes that its row says, and is no other job's.
"""

import errno
import hashlib
from collections import Counter
from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import NamedTuple

from spool.domain.archive.outputs import JobOutput
from spool.failpoints import failpoint
from spool.objects.local import write_whole
from tests.simulation.database import Observer
from tests.simulation.objects import Objects, SimulatedStore
from tests.simulation.scheduler import BEGAN, NS, Scheduler
from tests.simulation.timeline import Timeline

BUCKET = "s3://exports/"
BEGUN = ".spool-"
"""What a file is called until it is whole."""
NAMES = 6
"""How many names the files have: recordings of equal names go to one folder."""
LATE_S = 300.0
"""A file that is to be written again waits for at most so long beyond its time."""


def make_output(root: str, project: str, number: int) -> JobOutput:
    """Where below the address `root` the transcript of this recording goes."""
    return {
        "prefix": f"{root}{project}/",
        "formats": ["srt", "txt"],
        "layout": "flat",
        "connection": None,
        "path": f"tape-{number % NAMES}",
    }


_PROMISED = """
SELECT j.name, j.state, j.source_uri, e.format, e.state, e.uri, e.sha256, e.due_at < ?
FROM jobs j LEFT JOIN exports e ON e.job_id = j.id WHERE j.output IS NOT NULL ORDER BY j.id, e.format
"""


class _Promised(NamedTuple):
    """A file of a job that has an output; `state` is None if there is no row for it, `late`:
    it should have been written by now."""

    name: str
    job_state: str
    source: str
    format: str | None
    state: str | None
    uri: str | None
    sha256: str | None
    late: bool | None


class Bucket:
    """In place of `spool.objects.outputs.write_object`: somebody else's bucket."""

    def __init__(self, objects: Objects) -> None:
        self._objects, self._store = objects, SimulatedStore(objects)

    def read(self) -> dict[str, str]:
        """The SHA-256 of what is there, by address."""
        return {BUCKET + key: sha256 for key, (_, _, sha256) in self._objects.stored.items()}

    def write(self, _options: object, uri: str, data: bytes, content_type: str) -> str:
        """Store the file; its SHA-256."""
        return str(self._store.put_bytes(uri.removeprefix(BUCKET), data, content_type).sha256)


class Folder:
    """In place of `spool.objects.outputs.write_whole`: somebody else's folder, failing as `objects` do."""

    def __init__(self, objects: Objects, root: Path, violate: Callable[[str, str], None]) -> None:
        """`violate` is told which law is broken, and by what."""
        self._objects, self._root, self._violate = objects, root, violate
        root.mkdir()

    def write(self, path: Path, temporary: Path, read: Callable[[], bytes]) -> str:
        """Write as the product does; halfway another process may come first, and this one may end."""
        self._refuse()
        there = self._list()

        def read_slowly() -> bytes:
            data = read()
            if data:
                for half in sorted(self._list() - there):
                    self._violate("an export appears whole", f"{half.name} is in sight before it is whole")
                failpoint("export.half")
                self._refuse()
            return data

        return write_whole(path, temporary, read_slowly)

    def _refuse(self) -> None:
        objects = self._objects
        if objects.full:
            raise OSError(errno.ENOSPC, "the simulated folder is full")
        if objects.refused and objects.scheduler.random.random() < objects.refused:
            raise OSError(errno.EIO, "the simulated folder does not answer")

    def read(self) -> dict[str, str]:
        """The SHA-256 of what is there, by address; without what a process had begun and was killed."""
        return {each.as_uri(): hashlib.sha256(each.read_bytes()).hexdigest() for each in sorted(self._list())}

    def _list(self) -> set[Path]:
        """What somebody who looks takes for a transcript."""
        return {each for each in self._root.rglob("*") if each.is_file() and not each.name.startswith(BEGUN)}


def check_exports(
    there: Mapping[str, str], observer: Observer, scheduler: Scheduler, timeline: Timeline
) -> None:
    """Whether every promised file is there, and none besides. `there`: SHA-256 by address."""
    late = datetime.fromtimestamp((BEGAN + scheduler.now_ns) / NS - LATE_S, UTC)
    files = [_Promised(*row) for row in observer.rows(_PROMISED, f"{late:%Y-%m-%d %H:%M:%S.%f}")]
    current = {(each.source, each.format) for each in files if each.state != "replaced"}
    for each in files:
        file = _shorten(each.uri)
        if each.state is None and each.job_state == "done":
            timeline.violate("no export is lost", f"{each.name} is done, and no file was promised")
        elif each.state == "failed" or (each.state == "pending" and each.late):
            timeline.violate("no export is lost", f"{file} of {each.name} is {each.state}")
        elif each.state == "written" and there.get(str(each.uri)) != each.sha256:
            timeline.violate("an export is the job's", f"{file} of {each.name} has other bytes")
        elif each.state == "replaced" and (each.source, each.format) not in current:
            timeline.violate("an export is the job's", f"{file} of {each.name} went to another recording")
    owners = Counter(each.uri for each in files if each.state == "written")
    for uri, number in owners.items():
        if number > 1:
            timeline.violate("an export is the job's", f"{_shorten(uri)} is written by {number} jobs")
    for uri in sorted(there.keys() - {each.uri for each in files}):
        timeline.violate("an export appears once", f"{_shorten(uri)} belongs to no job")
    timeline.note(f"exported: {len(there)} files")


def _shorten(uri: str | None) -> str:
    """The address without the folder of this run, which is another each time."""
    return "/".join(str(uri).split("/")[-2:])
