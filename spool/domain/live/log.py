"""The log of a live session: numbered objects in the object store, `jobs/{id}/live/00000000` and on.

Each record is written once and by one writer. It is a letter and what belongs to it; records other than audio
and the last one are the letter alone, so that sizes say how much audio there is. Whoever replays the log
hears what was heard the first time. Pure.
"""

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


def record_key(job_id: str, number: int) -> str:
    """Where a record is stored; numbers begin at 0 and leave none out."""
    return f"{log_prefix(job_id)}{number:08d}"
