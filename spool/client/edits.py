"""The calls that correct transcripts."""

from spool.client.exchange import Ask, Flow, read
from spool.schemas.common import ListOf
from spool.schemas.edits import EditOut


def edits(job_id: str) -> Flow[list[EditOut]]:
    """All corrections of a transcript and all undos, oldest first."""
    return (yield from read(Ask("GET", f"/v1/jobs/{job_id}/edits"), ListOf[EditOut])).items


def edit(
    job_id: str,
    first_word: int,
    last_word: int,
    text: str | None = None,
    *,
    speaker: str | None = None,
    seen: int = 0,
    author: str | None = None,
) -> Flow[EditOut]:
    """Replace words of a transcript by a text, or give them another speaker.

    `first_word` and `last_word`, both included, count from 0 in the transcript as it was recognised. `seen`
    is the revision that you have seen. Raises Conflict with the code `edited` if the same words were changed
    since; `problem["other"]` is that edit.
    """
    body = {"first_word": first_word, "last_word": last_word, "text": text, "speaker": speaker, "seen": seen}
    path = f"/v1/jobs/{job_id}/edits"
    return (yield from read(Ask("POST", path, json=body | {"author": author}), EditOut))


def undo_edit(job_id: str, revision: int, *, author: str | None = None) -> Flow[EditOut]:
    """Undo a correction; what it replaced is restored."""
    ask = Ask("POST", f"/v1/jobs/{job_id}/edits/{revision}/undo", json={"author": author})
    return (yield from read(ask, EditOut))
