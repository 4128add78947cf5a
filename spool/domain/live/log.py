"""The log of a live session: numbered objects in the object store, `jobs/{id}/live/00000000` and on.

Each record is written once and by one writer. It is a letter and what belongs to it; records other than audio
and the last one are the letter alone, so that sizes say how much audio there is. Whoever replays the log
hears what was heard the first time. Pure.

A session that goes on in another connection has a part of the log for each, `jobs/{id}/live/p001/00000000`
and on behind the first. SQL says where in the session's audio a part begins (`Parts`), and there the part
before it ends: what its writer still wrote behind that, since it did not know, is no part of the session, and
comes again from the client.
"""

import math
from dataclasses import dataclass
from typing import Literal

KEEP_ALIVE_SECONDS = 5.0
"""An open session has a record at least so often, audio or not."""
ABANDONED_SECONDS = 20.0
"""A session without a new record for so long has lost its writer, and is at its end."""

Kind = Literal["audio", "finalize", "alive", "end"]
_LETTERS: dict[Kind, bytes] = {"audio": b"a", "finalize": b"f", "alive": b"k", "end": b"e"}
_KINDS = {letter: kind for kind, letter in _LETTERS.items()}


@dataclass(frozen=True, slots=True)
class Record:
    """One entry. audio: `data` is PCM; finalize: make final what was heard; alive: the client is still there;
    end: nothing comes after this, `data` says why."""

    kind: Kind
    data: bytes = b""

    def encode(self) -> bytes:
        """As it is stored."""
        return _LETTERS[self.kind] + self.data


def decode_record(stored: bytes) -> Record:
    """The record that `Record.encode` wrote. Raises ValueError for other bytes."""
    kind = _KINDS.get(stored[:1])
    if kind is None:
        raise ValueError("these bytes are no record of a live session")
    return Record(kind, stored[1:])


def audio_size(stored_size: int) -> int:
    """The bytes of audio in a record that is not the end, by its size."""
    return stored_size - 1


def log_prefix(job_id: str) -> str:
    """What the keys of a session's log begin with."""
    return f"jobs/{job_id}/live/"


def record_key(job_id: str, number: int, part: int = 0) -> str:
    """Where a record is stored; numbers begin at 0 in each part and leave none out."""
    return f"{part_prefix(job_id, part)}{number:08d}"


def part_prefix(job_id: str, part: int) -> str:
    """What the keys of a part's records begin with; of the first part, those of all others too."""
    return f"{log_prefix(job_id)}p{part:03d}/" if part else log_prefix(job_id)


def is_in_part(key: str, job_id: str, part: int) -> bool:
    """Whether the object is a record of this part."""
    prefix = part_prefix(job_id, part)
    return key.startswith(prefix) and "/" not in key[len(prefix) :]


@dataclass(frozen=True, slots=True)
class Parts:
    """starts: how many bytes of the session's audio come before each part but the first. is_closed: the
    session is at its end, and no part can follow."""

    starts: tuple[int, ...] = ()
    is_closed: bool = False

    @property
    def last(self) -> int:
        """The part that is written now."""
        return len(self.starts)

    def start(self, part: int) -> int:
        """Bytes of audio before this part."""
        return self.starts[part - 1] if part else 0

    def end(self, part: int) -> float:
        """Bytes of audio before the part behind this one; infinity where there is none."""
        return self.starts[part] if part < len(self.starts) else math.inf


MOST_PARTS = 1000
"""Of one session; one that is lost more often has to be opened anew."""
