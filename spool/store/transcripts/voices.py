"""Voice prints: stored if a job asks for them, matched with named voices, never returned.

A voice belongs to a project. A print counts for it once a person confirmed that speaker, and is deleted with
its job's transcript. Deleting a voice deletes the prints that were confirmed as it.
"""

from collections.abc import Mapping, Sequence

from sqlalchemy import Connection, delete, func, insert, literal, null, select, update

from spool.domain.archive.voices import KnownVoice, Voice, VoiceMatch, matches_of, mean_print
from spool.errors import Conflict
from spool.ids import new_id
from spool.store.sql import find_row, now_utc, upsert
from spool.tables import channel_passes, jobs, voice_prints, voices
from spool.tables.record import values_of


def write_prints(tx: Connection, job_id: str, encoder: str, prints: Mapping[str, bytes]) -> None:
    """Replace the prints of a job's speakers, by label. A speaker whose name is that of the voice which an
    earlier speaker of the job was confirmed as stays confirmed."""
    known = select(voices.c.name, voices.c.id).join(voice_prints, voice_prints.c.voice_id == voices.c.id)
    confirmed = {row.name: row.id for row in tx.execute(known.where(voice_prints.c.job_id == job_id))}
    names = {each["label"]: each["name"] for each in _speakers(tx, job_id)}
    tx.execute(delete(voice_prints).where(voice_prints.c.job_id == job_id))
    rows = [
        {"job_id": job_id, "label": label, "encoder": encoder, "print": data}
        | {"voice_id": confirmed.get(names.get(label))}
        for label, data in prints.items()
    ]
    if rows:
        tx.execute(insert(voice_prints), rows)
    _drop_empty(tx)


def copy_prints(tx: Connection, source_id: str, job_id: str) -> None:
    """Give a job that reused another one's transcript the prints of its speakers, none confirmed."""
    columns = ("job_id", "label", "encoder", "print")
    own = select(literal(job_id), *(voice_prints.c[name] for name in columns[1:]))
    tx.execute(insert(voice_prints).from_select(columns, own.where(voice_prints.c.job_id == source_id)))


def forget_turn_prints(tx: Connection, job_id: str) -> None:
    """Drop the prints of an attempt that continues."""
    tx.execute(update(channel_passes).where(channel_passes.c.job_id == job_id).values(prints=null()))


def drop_prints(tx: Connection, job_ids: Sequence[str]) -> None:
    """Delete the prints of these jobs, and voices that have no other print."""
    tx.execute(delete(voice_prints).where(voice_prints.c.job_id.in_(job_ids)))
    _drop_empty(tx)


def confirm_voices(
    tx: Connection, job_id: str, project: str, names: Mapping[str, str | None], *, remember: bool
) -> None:
    """Record that a person gave speakers of the job these names: with `remember` their prints count for the
    voices of these names, otherwise for none if the name changed.

    Raises Conflict if a speaker to remember has no print.
    """
    rows = tx.execute(
        select(voice_prints.c.label, voices.c.name)
        .outerjoin(voices, voices.c.id == voice_prints.c.voice_id)
        .where(voice_prints.c.job_id == job_id)
    )
    voice_of = {row.label: row.name for row in rows}
    for label, name in names.items():
        if remember and name is not None and label not in voice_of:
            raise Conflict(
                f"{label} has no voice print to remember: ask for them with the option "
                "`diarization: {voice_prints: true}`; speakers with less than five seconds have none."
            )
        if label not in voice_of or name == voice_of[label]:
            continue
        voice = _voice(tx, project, name) if remember and name is not None else None
        tx.execute(
            update(voice_prints)
            .where(voice_prints.c.job_id == job_id, voice_prints.c.label == label)
            .values(voice_id=voice or null())
        )
    _drop_empty(tx)


def matches(tx: Connection, job_id: str, project: str) -> dict[str, list[VoiceMatch]]:
    """By label the voices of the project that each speaker with a print may be; none for confirmed ones."""
    own = tx.execute(select(voice_prints).where(voice_prints.c.job_id == job_id)).all()
    if not own:
        return {}
    encoder = own[0].encoder
    rows = tx.execute(
        select(voices.c.id, voices.c.name, voice_prints.c.print)
        .join(voice_prints, voice_prints.c.voice_id == voices.c.id)
        .where(voices.c.project == project, voice_prints.c.encoder == encoder)
        .where(voice_prints.c.job_id != job_id)
    )
    by_voice: dict[tuple[str, str], list[bytes]] = {}
    for voice_id, name, data in rows:
        by_voice.setdefault((voice_id, name), []).append(data)
    known = {
        KnownVoice(voice_id, project, name, len(prints)): mean_print(prints)
        for (voice_id, name), prints in by_voice.items()
    }
    open_ = {row.label: row.print for row in own if row.voice_id is None}
    return {row.label: [] for row in own} | matches_of(open_, known)


def list_voices(tx: Connection, project: str | None = None) -> list[KnownVoice]:
    """All voices, or those of one project, by name."""
    query = (
        select(voices.c.id, voices.c.project, voices.c.name, func.count(voice_prints.c.job_id))
        .outerjoin(voice_prints, voice_prints.c.voice_id == voices.c.id)
        .group_by(voices.c.id, voices.c.project, voices.c.name)
        .order_by(voices.c.project, voices.c.name)
    )
    if project is not None:
        query = query.where(voices.c.project == project)
    return [KnownVoice(*row) for row in tx.execute(query)]


def delete_voice(tx: Connection, voice_id: str, project: str | None = None) -> None:
    """Delete a voice and every print confirmed as it; speakers keep the name. Raises NotFound."""
    query = select(voices.c.id).where(voices.c.id == voice_id)
    if project is not None:
        query = query.where(voices.c.project == project)
    find_row(tx, query, f"There is no voice {voice_id}.")
    tx.execute(delete(voice_prints).where(voice_prints.c.voice_id == voice_id))
    tx.execute(delete(voices).where(voices.c.id == voice_id))


def _voice(tx: Connection, project: str, name: str) -> str:
    """The project's voice of that name, created if there is none."""
    row = values_of(Voice(new_id("voi"), project, name), Voice)
    upsert(tx, voices, row | {"created_at": now_utc()})
    query = select(voices.c.id).where(voices.c.project == project, voices.c.name == name)
    return str(tx.execute(query).scalar_one())


def _drop_empty(tx: Connection) -> None:
    used = select(voice_prints.c.voice_id).where(voice_prints.c.voice_id == voices.c.id)
    tx.execute(delete(voices).where(~used.exists()))


def _speakers(tx: Connection, job_id: str) -> list[dict[str, str | None]]:
    return tx.execute(select(jobs.c.speakers).where(jobs.c.id == job_id)).scalar_one() or []
