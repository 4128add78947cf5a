"""The log of a live session: numbered objects in the object store, from `jobs/{id}/live/00000000` on.

Each record is written once and by one writer. It consists of a letter and its data; only audio and the end
have data, so that sizes tell how much audio there is. Replaying the log gives the same audio as the first
time. Pure.

Each further connection of a session writes a part of its own, from `jobs/{id}/live/p001/00000000` on. SQL
says where in the session's audio a part begins (`LogParts`), and there the part before it ends: anything that
its writer, unaware of this, wrote after that is not part of the session, and the client sends it again.
"""

import math
from dataclasses import dataclass
from typing import Literal

KEEP_ALIVE_SECONDS = 5.0
"""The longest time between records of an open session, with audio or without."""
ABANDONED_SECONDS = 20.0
"""After this long without a new record a session has lost its writer and ends."""

Kind = Literal["audio", "finalize", "alive", "end"]
_LETTERS: dict[Kind, bytes] = {"audio": b"a", "finalize": b"f", "alive": b"k", "end": b"e"}
_KINDS = {letter: kind for kind, letter in _LETTERS.items()}


@dataclass(frozen=True, slots=True)
class LogRecord:
    """One entry. audio: `data` is PCM; finalize: make final what was heard; alive: the client is still there;
    end: the last entry, whose `data` says why."""

    kind: Kind
    data: bytes = b""

    def encode(self) -> bytes:
        """The record in its stored form."""
        return _LETTERS[self.kind] + self.data


def decode_record(stored: bytes) -> LogRecord:
    """The record that `LogRecord.encode` wrote. Raises ValueError for other bytes."""
    kind = _KINDS.get(stored[:1])
    if kind is None:
        raise ValueError("these bytes are not a record of a live session")
    return LogRecord(kind, stored[1:])


def audio_size(stored_size: int) -> int:
    """The bytes of audio in a record that is not the end, by its size."""
    return stored_size - 1


def log_prefix(job_id: str) -> str:
    """The prefix of the keys of a session's log."""
    return f"jobs/{job_id}/live/"


def record_key(job_id: str, number: int, part: int = 0) -> str:
    """Where a record is stored; numbers begin at 0 in each part and have no gaps."""
    return f"{part_prefix(job_id, part)}{number:08d}"


def part_prefix(job_id: str, part: int) -> str:
    """The prefix of the keys of a part's records; for the first part, that of all other parts too."""
    return f"{log_prefix(job_id)}p{part:03d}/" if part else log_prefix(job_id)


def is_in_part(key: str, job_id: str, part: int) -> bool:
    """Whether the object is a record of this part."""
    prefix = part_prefix(job_id, part)
    return key.startswith(prefix) and "/" not in key[len(prefix) :]


@dataclass(frozen=True, slots=True)
class LogParts:
    """starts: how many bytes of the session's audio come before each part but the first. is_closed: the
    session has ended, and no part can follow."""

    starts: tuple[int, ...] = ()
    is_closed: bool = False

    @property
    def last(self) -> int:
        """The part that is being written."""
        return len(self.starts)

    def start(self, part: int) -> int:
        """Bytes of audio before this part."""
        return self.starts[part - 1] if part else 0

    def end(self, part: int) -> float:
        """Bytes of audio before the next part; infinity if there is none."""
        return self.starts[part] if part < len(self.starts) else math.inf


MOST_PARTS = 1000
"""The most parts of one session; a client that is lost more often has to open a new one."""
