"""API keys: their form, and their rows on both databases."""

from datetime import UTC, datetime
from pathlib import Path

import pytest
from sqlalchemy import select, update

from ops.testbed.postgres import PostgresServer
from spool.domain import KEY_PATTERN, Scope, digest_key, is_same_key, key_id_of, mint_key
from spool.errors import InvalidRequest, NotFound, StorageError
from spool.store import (
    Database,
    any_key,
    create_key,
    find_key,
    list_keys,
    note_use,
    revoke_key,
    seconds_from_now,
)
from spool.tables import api_keys

READ = (Scope.READ,)


def test_a_key_is_known_by_its_form() -> None:
    minted = mint_key()
    assert key_id_of(minted.text) == minted.id
    assert digest_key(minted.text) == minted.sha256
    assert is_same_key(minted.text, minted.sha256)
    assert not is_same_key(mint_key().text, minted.sha256)
    assert minted.text not in repr(minted)
    assert len({mint_key().text for _ in range(100)}) == 100
    assert "spool_[" in KEY_PATTERN


@pytest.mark.parametrize("change", ["spool", "", "a b", "spool_", "ü" * 92])
def test_what_is_no_key_is_known_without_a_database(change: str) -> None:
    assert key_id_of(change) is None


def test_a_mistyped_key_is_known_without_a_database() -> None:
    text = mint_key().text
    for place in (8, 40, -1):
        other = "0" if text[place] != "0" else "1"
        typed = list(text)
        typed[place] = other
        assert key_id_of("".join(typed)) is None
    assert key_id_of(text.lower()) is None
    assert key_id_of(f"{text}\n") is None


def test_a_key_is_kept_as_its_hash_alone(db: Database) -> None:
    with db.read() as tx:
        assert not any_key(tx)

    with db.begin() as tx:
        minted = create_key(tx, "Zoë", "reels", (Scope.SUBMIT, Scope.READ), sources=["s3://archive/"])

    with db.read() as tx:
        assert any_key(tx)
        key = find_key(tx, minted.id)
        (row,) = tx.execute(select(api_keys)).all()
    assert key is not None
    assert (key.name, key.project, key.scopes) == ("Zoë", "reels", frozenset({Scope.READ, Scope.SUBMIT}))
    assert (key.sources, key.alive, key.used_at) == (("s3://archive/",), True, None)
    assert minted.text not in str(row)
    assert minted.text[33:] not in str(row)
    assert key.sha256 not in repr(key)


def test_a_database_without_tables_is_told_what_to_do(postgres: PostgresServer, tmp_path: Path) -> None:
    for url in (postgres.create_database("keyless"), f"sqlite:///{tmp_path / 'keyless.db'}"):
        database = Database(url)
        with pytest.raises(StorageError, match="python -m migrations upgrade"), database.read() as tx:
            any_key(tx)
        database.close()


def test_a_key_dies_when_it_is_revoked_or_expires(db: Database) -> None:
    with db.begin() as tx:
        revoked = create_key(tx, "a", "reels", READ).id
        past = create_key(tx, "b", "reels", READ, expires_at=datetime(2020, 1, 1, tzinfo=UTC)).id
        future = create_key(tx, "c", "reels", READ, expires_at=datetime(2120, 1, 1, tzinfo=UTC)).id
        first = revoke_key(tx, revoked)

    with db.begin() as tx:
        again = revoke_key(tx, revoked)
        alive = {key.id: key.alive for key in list_keys(tx)}
        assert any_key(tx)  # also where none is alive: nobody is let in without one any more
        with pytest.raises(NotFound):
            revoke_key(tx, "key_01JD5T9Q4X8K2M6N0P3R7S1V5W")
        assert find_key(tx, "key_01JD5T9Q4X8K2M6N0P3R7S1V5W") is None
    assert alive == {revoked: False, past: False, future: True}
    assert again.revoked_at == first.revoked_at is not None


def test_the_last_use_is_written_once_a_minute(db: Database) -> None:
    with db.begin() as tx:
        key_id = create_key(tx, "a", "reels", READ).id
        note_use(tx, key_id)
    used = [used_at(db, key_id)]
    with db.begin() as tx:
        note_use(tx, key_id)
    used.append(used_at(db, key_id))
    with db.begin() as tx:
        tx.execute(update(api_keys).values(used_at=seconds_from_now(-61)))
    old = used_at(db, key_id)
    with db.begin() as tx:
        note_use(tx, key_id)

    assert used[0] is not None
    assert used[0] == used[1]
    assert old is not None
    assert (used_at(db, key_id) or old) > old


def used_at(db: Database, key_id: str) -> datetime | None:
    with db.read() as tx:
        key = find_key(tx, key_id)
    assert key is not None
    return key.used_at


@pytest.mark.parametrize(
    ("project", "scopes", "sources"),
    [(None, READ, None), ("p", (Scope.ADMIN,), None), ("p", (), None), (None, (Scope.ADMIN,), ["s3://a/"])],
)
def test_a_key_that_makes_no_sense_is_refused(
    db: Database, project: str | None, scopes: tuple[Scope, ...], sources: list[str] | None
) -> None:
    with db.begin() as tx, pytest.raises(InvalidRequest):
        create_key(tx, "a", project, scopes, sources=sources)
