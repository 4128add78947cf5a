"""The calls about words after transcription: speakers, corrections, the search and the review."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from datetime import datetime
from typing import Literal, Unpack

from spool import schemas
from spool.client.exchange import Ask, Flow, all_pages, body_of, read, read_list, receive
from spool.client.fields import PassageQuery, ReviewQuery, SearchQuery
from spool.client.jobs import LONGEST_PAGE, new_key


def diarize(
    job_id: str,
    *,
    speakers: int | Mapping[str, int] | None = None,
    within_channels: bool = False,
    model: str = "default",
    voice_prints: bool = False,
    idempotency_key: str | None = None,
) -> Flow[schemas.JobDetail]:
    """Find the speakers of a finished job; no word is transcribed again. Wait for the job as usual.

    `speakers`: how many there are, or `{"min": 2, "max": 4}`. `model`: the diarization model, such as
    `"sortformer"`. Raises Conflict while the job is not done.
    """
    body = body_of({"speakers": speakers, "within_channels": within_channels, "model": model})
    body["voice_prints"] = voice_prints
    ask = Ask("POST", f"/v1/jobs/{job_id}/diarize", json=body, key=idempotency_key or new_key())
    return read(ask, schemas.JobDetail)


def name_speakers(
    job_id: str, names: Mapping[str, str | None], *, remember: bool = False
) -> Flow[schemas.ListOf[schemas.HeardSpeakerOut]]:
    """Name the speakers of a job's transcript by label; None removes a name. Others keep theirs. `remember`:
    recognise them in the project's other recordings, by their voice prints."""
    body = {"names": dict(names), "remember": remember}
    ask = Ask("PATCH", f"/v1/jobs/{job_id}/speakers", json=body, key=new_key())
    return read(ask, schemas.ListOf[schemas.HeardSpeakerOut])


def speakers(job_id: str) -> Flow[schemas.ListOf[schemas.HeardSpeakerOut]]:
    """The speakers of a job's transcript, and the named voices that they resemble."""
    return read(Ask("GET", f"/v1/jobs/{job_id}/speakers"), schemas.ListOf[schemas.HeardSpeakerOut])


def voices() -> Flow[list[schemas.VoiceOut]]:
    """The named voices."""
    return read_list(Ask("GET", "/v1/voices"), schemas.VoiceOut)


def forget_voice(voice_id: str) -> Flow[None]:
    """Delete a voice with all its voice prints; speakers keep the name."""
    yield from receive(Ask("DELETE", f"/v1/voices/{voice_id}"))


def edits(job_id: str) -> Flow[list[schemas.EditOut]]:
    """All corrections of a transcript and all undos, oldest first."""
    return read_list(Ask("GET", f"/v1/jobs/{job_id}/edits"), schemas.EditOut)


def edit(
    job_id: str,
    first_word: int,
    last_word: int,
    text: str | None = None,
    *,
    speaker: str | None = None,
    seen: int = 0,
    author: str | None = None,
    closed: bool = False,
) -> Flow[schemas.EditOut]:
    """Replace words of a transcript by a text, or give them another speaker.

    `first_word` and `last_word`, both included, count from 0 in the transcript as it was recognised. `seen`
    is the revision that you have seen. Raises Conflict with the code `edited` if the same words were changed
    since; `problem["other"]` is that edit. `closed`: the words were
    counted with those that are closed to readers.
    """
    body = {"first_word": first_word, "last_word": last_word, "text": text, "speaker": speaker, "seen": seen}
    query = {"closed": closed or None}
    ask = Ask("POST", f"/v1/jobs/{job_id}/edits", query, json=body | {"author": author})
    return read(ask, schemas.EditOut)


def undo_edit(
    job_id: str, revision: int, *, author: str | None = None, closed: bool = False
) -> Flow[schemas.EditOut]:
    """Undo a correction; what it replaced is restored."""
    query = {"closed": closed or None}
    ask = Ask("POST", f"/v1/jobs/{job_id}/edits/{revision}/undo", query, json={"author": author})
    return read(ask, schemas.EditOut)


def spread_places(
    job_id: str, revision: int, *, limit: int | None = None, closed: bool = False
) -> Flow[schemas.SpreadOut]:
    """Other places of the project where the name that a correction wrote was written otherwise, the surest
    first, each with its clip."""
    query = {"limit": limit, "closed": closed or None}
    return read(Ask("GET", f"/v1/jobs/{job_id}/edits/{revision}/places", query), schemas.SpreadOut)


def spread_edit(
    job_id: str,
    revision: int,
    places: Iterable[schemas.SpreadPlace],
    *,
    author: str | None = None,
    closed: bool = False,
) -> Flow[schemas.SpreadDone]:
    """Correct these places like the correction. Those whose words were changed meanwhile are in `refused`."""
    fields = ("job", "first_word", "last_word", "written", "text", "seen")
    wanted = [place.model_dump(include=set(fields)) for place in places]
    query = {"closed": closed or None}
    ask = Ask(
        "POST", f"/v1/jobs/{job_id}/edits/{revision}/spread", query, json={"places": wanted, "author": author}
    )
    return read(ask, schemas.SpreadDone)


def undo_spread(
    job_id: str, revision: int, *, author: str | None = None, closed: bool = False
) -> Flow[schemas.SpreadDone]:
    """Undo what a correction was spread to; the correction itself stays."""
    query = {"closed": closed or None}
    ask = Ask("POST", f"/v1/jobs/{job_id}/edits/{revision}/spread/undo", query, json={"author": author})
    return read(ask, schemas.SpreadDone)


def close_to_readers(
    job_id: str,
    *,
    start: float | None = None,
    end: float | None = None,
    speaker: str | None = None,
    until: datetime | str | None = None,
    reason: str = "",
) -> Flow[schemas.ClosureOut]:
    """Close a recording to readers: whole, from `start` to `end` in seconds, or a speaker. `until`: when it
    opens by itself. The original is kept."""
    kind = "range" if start is not None or end is not None else "whole" if speaker is None else "speaker"
    date = until.isoformat() if isinstance(until, datetime) else until
    body = body_of({"kind": kind, "start": start, "end": end, "speaker": speaker, "until": date})
    ask = Ask("POST", f"/v1/jobs/{job_id}/closures", json=body | {"reason": reason})
    return read(ask, schemas.ClosureOut)


def closures(job_id: str) -> Flow[list[schemas.ClosureOut]]:
    """What is closed of a recording, and what was."""
    return read_list(Ask("GET", f"/v1/jobs/{job_id}/closures"), schemas.ClosureOut)


def lift_closure(job_id: str, closure_id: str) -> Flow[schemas.ClosureOut]:
    """Open a closed part to all readers again. Needs a key with the scope `closed`."""
    return read(Ask("DELETE", f"/v1/jobs/{job_id}/closures/{closure_id}"), schemas.ClosureOut)


def openings(job_id: str) -> Flow[list[schemas.OpeningOut]]:
    """Who was given what is closed of a job, newest first. Needs a key with the scope `closed`."""
    return read_list(Ask("GET", f"/v1/jobs/{job_id}/openings"), schemas.OpeningOut)


def closure_suggestions(job_id: str, *, closed: bool = False) -> Flow[list[schemas.PrivateOut]]:
    """Words that look like names, phone numbers or addresses: for a person to decide about."""
    query = {"closed": closed or None}
    return read_list(Ask("GET", f"/v1/jobs/{job_id}/closure-suggestions", query), schemas.PrivateOut)


def decide_not_private(
    job_id: str,
    kind: Literal["name", "phone", "address"],
    text: str,
    *,
    private: bool = False,
    closed: bool = False,
) -> Flow[list[schemas.PrivateOut]]:
    """Suggest these words no more, in no version of the recording; `private`: again. Returns the suggestions
    that are left."""
    body = {"kind": kind, "text": text, "private": private}
    path = f"/v1/jobs/{job_id}/closure-suggestions"
    return read_list(Ask("POST", path, {"closed": closed or None}, json=body), schemas.PrivateOut)


def search_page(
    q: str = "", *, limit: int = LONGEST_PAGE, cursor: str | None = None, **only: Unpack[SearchQuery]
) -> Flow[schemas.FoundOut]:
    """Up to `limit` (1 to 200) hits, the newest recording first, after the `next_cursor` of another page.

    `docs/search.md` describes `q`; the other arguments narrow it down, `versions="newest"` to the newest
    transcript of each recording. `sound`: also what sounds like these words, however it is written, or
    `spelling`: like these phones; the hits are then the best ones, `sounds` says what was searched. Raises
    Refused if `q`, `sound` or `spelling` is invalid.
    """
    query = {"q": q or None, **only, "limit": limit, "cursor": cursor}
    return read(Ask("GET", "/v1/search", query), schemas.FoundOut)


search = all_pages(search_page)


def review_page(
    *, limit: int = LONGEST_PAGE, cursor: str | None = None, **only: Unpack[PassageQuery]
) -> Flow[schemas.Page[schemas.ReviewPassageOut]]:
    """Up to `limit` (1 to 200) unchecked passages, the most doubtful first, after the `next_cursor` of
    another page. `checked`: the checked ones instead. `versions`: `all` includes transcripts whose recording
    was transcribed again."""
    return read(
        Ask("GET", "/v1/review", {**only, "limit": limit, "cursor": cursor}),
        schemas.Page[schemas.ReviewPassageOut],
    )


review = all_pages(review_page)


def review_recordings_page(
    *, limit: int = LONGEST_PAGE, cursor: str | None = None, **only: Unpack[ReviewQuery]
) -> Flow[schemas.Page[schemas.ReviewRecordingOut]]:
    """Up to `limit` (1 to 200) recordings with unchecked passages, the most doubtful first, after the
    `next_cursor` of another page."""
    query = {**only, "limit": limit, "cursor": cursor}
    return read(Ask("GET", "/v1/review/recordings", query), schemas.Page[schemas.ReviewRecordingOut])


review_recordings = all_pages(review_recordings_page)


def check_passage(
    job_id: str, passage: int, *, author: str | None = None, checked: bool = True
) -> Flow[schemas.ReviewPassageOut]:
    """Mark a passage as checked, because its words are right, or with `checked=False` undo that."""
    path = f"/v1/jobs/{job_id}/passages/{passage}/check"
    return read(Ask("POST", path, json={"author": author, "checked": checked}), schemas.ReviewPassageOut)


def sample_size(
    *,
    project: str | None = None,
    batch: str | None = None,
    model: str | None = None,
    margin: float = 0.02,
) -> Flow[schemas.SizeOut]:
    """How many passages are needed to know the word error rate within ± `margin` with 95 % confidence."""
    query = {"project": project, "batch": batch, "model": model, "margin": margin}
    return read(Ask("GET", "/v1/review/size", query), schemas.SizeOut)


def draw_sample(
    *,
    project: str | None = None,
    batch: str | None = None,
    model: str | None = None,
    margin: float = 0.02,
    passages: int | None = None,
    seed: int | None = None,
    author: str | None = None,
) -> Flow[schemas.SampleOut]:
    """Draw passages at random, by default as many as `margin` requires. Raises Conflict if there are none."""
    body = body_of({"project": project, "batch": batch, "model": model, "margin": margin, "author": author})
    body |= body_of({"passages": passages, "seed": seed})
    return read(Ask("POST", "/v1/review/samples", json=body), schemas.SampleOut)


def sample(sample_id: str) -> Flow[schemas.SampleOut]:
    """The error rate of a sample, with its 95 % interval."""
    return read(Ask("GET", f"/v1/review/samples/{sample_id}"), schemas.SampleOut)


def samples_page(
    *, project: str | None = None, limit: int = 100, cursor: str | None = None
) -> Flow[schemas.Page[schemas.SampleOut]]:
    """Up to `limit` (1 to 100) samples, newest first, after the `next_cursor` of another page."""
    query = {"project": project, "limit": limit, "cursor": cursor}
    return read(Ask("GET", "/v1/review/samples", query), schemas.Page[schemas.SampleOut])


samples = all_pages(samples_page)
