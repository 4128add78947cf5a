"""The log of a live session: what is stored, and in how many pieces."""

import asyncio
from pathlib import Path

from anyio import CapacityLimiter

from api.live.log_writer import MOST_PENDING_FINALS, LogWriter
from spool.domain import LogRecord, decode_record, log_prefix
from spool.objects import FolderStore

JOB = "job_1"


class Silent:
    """Signals that nobody hears."""

    def tell(self, channel: str) -> None:
        pass


def written(folder: Path, *, frames: int, each: bool) -> list[LogRecord]:
    """The log after so many `Finalize` frames, with audio before `each` or before the first."""
    objects = FolderStore(folder)

    async def write() -> None:
        writer = LogWriter(objects, Silent(), JOB, CapacityLimiter(1))  # type: ignore[arg-type]
        for frame in range(frames):
            if each or not frame:
                await writer.audio(frame.to_bytes(2, "little"))
            writer.finalize()
        writer.end("closed")
        await writer.run()

    asyncio.run(write())
    items = sorted(objects.list(), key=lambda item: item.key)
    log = []
    for item in items:
        assert item.key.startswith(log_prefix(JOB))
        with objects.open(item.key) as stream:
            log.append(decode_record(stream.read()))
    return log


def test_thousands_of_requests_for_a_final_are_one_where_nothing_was_said_between(tmp_path: Path) -> None:
    kinds = [record.kind for record in written(tmp_path, frames=3000, each=False)]
    assert kinds == ["audio", "finalize", "end"]


def test_requests_that_come_faster_than_they_are_stored_join_and_no_audio_is_lost(tmp_path: Path) -> None:
    log = written(tmp_path, frames=100, each=True)
    kinds = [record.kind for record in log]
    assert kinds.count("finalize") == MOST_PENDING_FINALS
    assert kinds[-2:] == ["finalize", "end"], "the last one makes everything final"
    assert b"".join(record.data for record in log if record.kind == "audio") == b"".join(
        frame.to_bytes(2, "little") for frame in range(100)
    )
