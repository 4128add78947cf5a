"""Connections that are kept: used without being asked whether they live, unless they rested."""

import contextlib
import re
from typing import Any

import pytest
from sqlalchemy import event, exc, text

from ops.testbed.postgres import PostgresServer
from spool.errors import StorageError
from spool.store import Database, database


def test_a_connection_that_died_at_rest_is_replaced_unseen(
    postgres: PostgresServer, postgres_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(database, "PING_AFTER_S", 0.0)
    db = Database(postgres_url)
    with db.look() as tx:
        mine = tx.scalar(text("SELECT pg_backend_pid()"))
    with postgres.admin() as admin:
        ended = admin.execute("SELECT pg_terminate_backend(%s, 60000)", [mine]).fetchone()
    assert ended == (True,)

    with db.read() as tx:
        assert tx.scalar(text("SELECT pg_backend_pid()")) != mine
    db.close()


def test_a_look_is_one_statement_and_leaves_transactions_as_they_were(postgres_url: str) -> None:
    db = Database(postgres_url, pool_size=1)
    with db.look() as tx:
        connection: Any = tx.connection.dbapi_connection
        assert connection.info.transaction_status.name == "IDLE"
        tx.execute(text("SELECT 1"))
        assert connection.info.transaction_status.name == "IDLE"

    # The one connection of the pool is in transactions again, and these roll back.
    with contextlib.suppress(ZeroDivisionError), db.begin() as tx:
        tx.execute(text("CREATE TABLE passing (n int)"))
        raise ZeroDivisionError
    with db.read() as tx:
        assert tx.scalar(text("SELECT to_regclass('passing')")) is None
    db.close()


def test_connections_that_break_as_they_are_lent_are_an_outage(postgres_url: str) -> None:
    db = Database(postgres_url)

    def broken(*_: object) -> None:
        raise exc.DisconnectionError

    event.listen(db.engine, "checkout", broken)
    with pytest.raises(StorageError, match="lost"), db.begin():
        pass
    event.remove(db.engine, "checkout", broken)
    db.ping()
    db.close()


@pytest.mark.parametrize(
    "statement",
    ["SELECT colour FROM jobs", "UPDATE jobs SET colour = 1", "INSERT INTO jobs (colour) VALUES (1)"],
)
def test_a_database_of_another_version_is_named(db: Database, statement: str) -> None:
    with pytest.raises(StorageError) as caught, db.begin() as tx:
        tx.execute(text(statement))
    assert re.search(r"made by another version of Spool \(.*colour.*\): run the migr", caught.value.message)
