"""Transcripts that are promised elsewhere: where jobs write them, and the law over what is there at the end.

Each promised file is there exactly once, with the bytes that its row says, and is no other job's.
"""

from collections import Counter
from datetime import UTC, datetime
from typing import NamedTuple

from spool.domain.archive.outputs import JobOutput
from tests.simulation.database import Observer
from tests.simulation.objects import Objects, SimulatedStore
from tests.simulation.scheduler import BEGAN, NS, Scheduler
from tests.simulation.timeline import Timeline

BUCKET = "s3://exports/"
NAMES = 12
"""How many names the files have: recordings of equal names go to one folder."""
LATE_S = 300.0
"""A file that is to be written again waits for at most so long beyond its time."""


def make_output(project: str, number: int) -> JobOutput:
    """Where the transcript of this recording goes."""
    return {
        "prefix": f"{BUCKET}{project}/",
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

    def write(self, _options: object, uri: str, data: bytes, content_type: str) -> str:
        """Store the file; its SHA-256."""
        return str(self._store.put_bytes(uri.removeprefix(BUCKET), data, content_type).sha256)

    def check(self, observer: Observer, scheduler: Scheduler, timeline: Timeline) -> None:
        """Whether every promised file is there, and none besides."""
        late = datetime.fromtimestamp((BEGAN + scheduler.now_ns) / NS - LATE_S, UTC)
        files = [_Promised(*row) for row in observer.rows(_PROMISED, f"{late:%Y-%m-%d %H:%M:%S.%f}")]
        there = {BUCKET + key: sha256 for key, (_, _, sha256) in self._objects.stored.items()}
        current = {(each.source, each.format) for each in files if each.state != "replaced"}
        for each in files:
            if each.state is None and each.job_state == "done":
                timeline.violate("no export is lost", f"{each.name} is done, and no file was promised")
            elif each.state == "failed" or (each.state == "pending" and each.late):
                timeline.violate("no export is lost", f"{each.uri} of {each.name} is {each.state}")
            elif each.state == "written" and there.get(str(each.uri)) != each.sha256:
                timeline.violate("an export is the job's", f"{each.uri} of {each.name} has other bytes")
            elif each.state == "replaced" and (each.source, each.format) not in current:
                timeline.violate(
                    "an export is the job's", f"{each.uri} of {each.name} went to another recording"
                )
        owners = Counter(each.uri for each in files if each.state == "written")
        for uri, number in owners.items():
            if number > 1:
                timeline.violate("an export is the job's", f"{uri} is written by {number} jobs")
        for uri in sorted(there.keys() - {each.uri for each in files}):
            timeline.violate("an export appears once", f"{uri} belongs to no job")
        timeline.note(f"exported: {len(there)} files")
