"""Lists of phrases, each kept once under its digest, however many jobs have the same."""

from collections.abc import Iterable

from sqlalchemy import Connection, select
from sqlalchemy.dialects.postgresql import insert as postgresql_insert
from sqlalchemy.dialects.sqlite import insert as sqlite_insert

from spool.clock import now_utc
from spool.errors import NotFound
from spool.phrases import PhraseList
from spool.tables import phrase_lists


def keep_phrases(tx: Connection, lists: Iterable[PhraseList | None]) -> None:
    """Keep the lists that are not there yet; None is no list."""
    asked = {told.sha256: told for told in lists if told is not None}
    if not asked:
        return
    held = select(phrase_lists.c.sha256).where(phrase_lists.c.sha256.in_(list(asked)))
    # Held until the jobs that name them are committed, so that no deletion takes them for unused meanwhile.
    there = set(tx.scalars(held.order_by(phrase_lists.c.sha256).with_for_update(read=True)))
    build = sqlite_insert if tx.dialect.name == "sqlite" else postgresql_insert
    # In the order of their digests, so that two transactions never wait for each other in a circle.
    rows = [
        {"sha256": digest, "phrases": list(asked[digest].phrases)} for digest in sorted(set(asked) - there)
    ]
    if rows:
        tx.execute(build(phrase_lists).values(created_at=now_utc()).on_conflict_do_nothing(), rows)


def phrases_of(tx: Connection, sha256: str) -> tuple[str, ...]:
    """The phrases of a list. Raises NotFound."""
    found = tx.scalar(select(phrase_lists.c.phrases).where(phrase_lists.c.sha256 == sha256))
    if found is None:
        raise NotFound(f"There is no list of phrases {sha256}.")
    return tuple(found)
