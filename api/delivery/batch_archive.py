"""A batch's transcripts as one zip, produced while it is sent.

No transaction is open while transcripts are fetched or the client reads slowly. Memory holds a few
transcripts and the directory of the archive, some hundred bytes a job. A job without a transcript has a line
in `missing.tsv`. If a store stops answering, the download ends early, and without its directory no tool takes
the zip for complete.
"""

import io
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import NamedTuple
from zipfile import ZIP_DEFLATED, ZipFile, ZipInfo

from api.auth.sight import Sight, View
from api.delivery.batch_results import PARALLEL, batch_pages
from api.presenters.transcripts import read_transcript
from spool.domain.archive.edits import Edit
from spool.domain.jobs import Job, JobState
from spool.domain.manifest import in_blocks
from spool.domain.transcript import Transcript
from spool.errors import NotFound, ObjectDamaged
from spool.formats import Format, Preset, render_bytes
from spool.formats.file_names import MISSING, SUFFIXES, choose_name, free_name
from spool.objects import ObjectStore
from spool.store import Database
from spool.store.transcripts.edits import edits_of_all

_BLOCK = 64 * 1024


class _Sink(io.RawIOBase):
    """Buffers what the zip writes. It cannot seek, so sizes follow each file."""

    def __init__(self) -> None:
        self._bytes = bytearray()

    def writable(self) -> bool:
        return True

    def write(self, data: object, /) -> int:
        block = memoryview(data)  # type: ignore[arg-type]  # whatever holds bytes, as io promises
        self._bytes += block
        return block.nbytes

    def take(self) -> bytes:
        taken = bytes(self._bytes)
        self._bytes.clear()
        return taken

    def __len__(self) -> int:
        return len(self._bytes)


class _Rendered(NamedTuple):
    job: Job
    data: bytes | None
    reason: str


def archive_blocks(
    db: Database,
    objects: ObjectStore,
    batch_id: str,
    sight: Sight,
    form: Format,
    subtitles: Preset | None = None,
) -> Iterator[bytes]:
    """The bytes of the zip: one file per finished job, in the order of the manifest, named after its job."""
    sink = _Sink()
    names = {MISSING}
    missing = ["custom_id\tjob\tstate\treason\tname\n"]
    with ZipFile(sink, "w", ZIP_DEFLATED) as archive:
        for one in _render_each(
            db, objects, batch_id, sight, partial(render_bytes, format=form, subtitles=subtitles)
        ):
            if one.data is None:
                cells = (one.job.custom_id or "", one.job.id, one.job.state.value, one.reason, one.job.name)
                missing.append("\t".join(" ".join(cell.split()) for cell in cells) + "\n")
                continue
            job = one.job
            name = free_name(choose_name(job.custom_id, job.name), SUFFIXES[form], job.id, names)
            archive.writestr(_entry(str(name), job), one.data)
            if len(sink) >= _BLOCK:
                yield sink.take()
        if len(missing) > 1:
            archive.writestr(MISSING, "".join(missing))
    yield sink.take()


def _render_each(
    db: Database, objects: ObjectStore, batch_id: str, sight: Sight, write: Callable[[Transcript], bytes]
) -> Iterator[_Rendered]:
    with ThreadPoolExecutor(PARALLEL, thread_name_prefix="archive") as pool:
        for page in batch_pages(db, batch_id):
            with db.read() as tx:
                edits = edits_of_all(tx, [job.id for job in page])
            for few in in_blocks(page, PARALLEL):
                render = partial(_render, objects, edits, sight.look(db, *few), write)
                yield from pool.map(render, few)


def _render(
    objects: ObjectStore,
    edits: Mapping[str, Sequence[Edit]],
    views: Mapping[str, View],
    write: Callable[[Transcript], bytes],
    job: Job,
) -> _Rendered:
    if job.transcript_deleted_at is not None:
        return _Rendered(job, None, "The transcript was deleted.")
    if job.state is not JobState.DONE or job.transcript_key is None:
        return _Rendered(job, None, job.error_message or f"The job is {job.state}.")
    try:
        transcript = read_transcript(objects, job, edits.get(job.id, ()), views[job.id])
        return _Rendered(job, write(transcript), "")
    except (ObjectDamaged, NotFound) as error:
        return _Rendered(job, None, error.message)


def _entry(name: str, job: Job) -> ZipInfo:
    finished = job.finished_at or job.created_at
    entry = ZipInfo(name, finished.timetuple()[:6])
    entry.compress_type = ZIP_DEFLATED
    entry.external_attr = 0o644 << 16
    return entry
