"""Migrations end at `spool.tables`, and run in both directions on both databases."""

import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import pytest
from alembic.autogenerate import compare_metadata
from alembic.runtime.migration import MigrationContext
from alembic.script import ScriptDirectory
from sqlalchemy import Engine, create_engine, inspect, text
from sqlalchemy.exc import SQLAlchemyError

import migrations
from ops.testbed.postgres import PostgresServer
from spool.tables import metadata


@pytest.fixture(params=["sqlite", "postgresql"])
def empty_url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    if request.param == "sqlite":
        return f"sqlite:///{tmp_path / 'sub' / 'empty.db'}"
    server: PostgresServer = request.getfixturevalue("postgres")
    return server.create_database("migrating")


def tables_of(url: str) -> set[str]:
    engine = create_engine(url)
    try:
        names = inspect(engine).get_table_names()
        return {name for name in names if not name.startswith(migrations.FTS5)} - {"alembic_version"}
    finally:
        engine.dispose()


def test_migrations_end_at_the_tables(empty_url: str) -> None:
    migrations.upgrade(empty_url)

    with migrations.transaction(empty_url) as connection:
        context = MigrationContext.configure(
            connection,
            opts={
                "compare_type": True,
                "compare_server_default": True,
                "include_object": migrations.is_compared,
            },
        )
        assert compare_metadata(context, metadata) == []


def test_constraints_are_the_tables_own(empty_url: str) -> None:
    # Given what the migrations make and what the metadata makes
    migrations.upgrade(empty_url)
    engine = create_engine(empty_url)
    migrated = {name: checks_and_indexes(engine, name) for name in metadata.tables}
    planned_by = statistics(engine)
    migrations.downgrade(empty_url, "base")
    metadata.create_all(engine)

    # Then checks, foreign keys and partial indexes agree too, which Alembic does not compare
    created = {name: checks_and_indexes(engine, name) for name in metadata.tables}
    assert statistics(engine) == planned_by
    engine.dispose()
    assert migrated == created
    assert any(checks for checks, _, _ in migrated.values())


def test_the_full_text_index_is_the_tables_own(empty_url: str) -> None:
    migrations.upgrade(empty_url)
    engine = create_engine(empty_url)
    migrated = full_text_index(engine)
    migrations.downgrade(empty_url, "base")
    metadata.create_all(engine)
    created = full_text_index(engine)
    engine.dispose()
    assert migrated == created != []


def full_text_index(engine: Engine) -> list[str]:
    query = (
        "SELECT sql FROM sqlite_master WHERE name IN "
        "('passage_index', 'passages_inserted', 'passages_deleted') ORDER BY name"
        if engine.dialect.name == "sqlite"
        else "SELECT indexdef FROM pg_indexes WHERE indexname = 'ix_passages_terms'"
    )
    with engine.connect() as connection:
        return list(connection.scalars(text(query)))


def statistics(engine: Engine) -> list[str]:
    if engine.dialect.name != "postgresql":
        return []
    with engine.connect() as connection:
        defined = text("SELECT pg_get_statisticsobjdef(oid) FROM pg_statistic_ext ORDER BY stxname")
        return list(connection.scalars(defined))


def checks_and_indexes(engine: Engine, table: str) -> Any:
    inspector = inspect(engine)
    checks = {(check["name"], check["sqltext"]) for check in inspector.get_check_constraints(table)}
    keys = {(key["name"], str(key["options"])) for key in inspector.get_foreign_keys(table)}
    indexes = {
        (str(index["name"]), str(index["column_names"]), *map(str, index.get("dialect_options", {}).values()))
        for index in inspector.get_indexes(table)
    }
    return checks, keys, indexes


def test_upgrade_and_downgrade_run_again_and_again(empty_url: str) -> None:
    for _ in range(2):
        migrations.upgrade(empty_url)
        assert tables_of(empty_url) == set(metadata.tables)
        assert migrations.current(empty_url) is not None

        migrations.downgrade(empty_url, "base")
        assert tables_of(empty_url) == set()
        assert migrations.current(empty_url) is None


def test_upgrading_twice_changes_nothing(empty_url: str) -> None:
    migrations.upgrade(empty_url)
    before = migrations.current(empty_url)

    migrations.upgrade(empty_url)

    assert migrations.current(empty_url) == before


def test_the_newest_revision_is_alembics() -> None:
    scripts = ScriptDirectory(str(Path(migrations.__file__).parent))

    assert scripts.get_heads() == [migrations.newest()]


@pytest.mark.integration
def test_a_current_database_needs_no_alembic(empty_url: str) -> None:
    # Given a database at the newest revision
    migrations.upgrade(empty_url)

    # When a new process upgrades it
    code = f"import sys, migrations; migrations.upgrade({empty_url!r}); sys.exit('alembic' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], check=False, timeout=60)

    # Then it starts without loading what it does not need
    assert done.returncode == 0


def test_processes_that_migrate_at_once_take_turns(empty_url: str) -> None:
    failures: list[BaseException] = []

    def migrate() -> None:
        try:
            migrations.upgrade(empty_url)
        except SQLAlchemyError as error:
            failures.append(error)

    threads = [threading.Thread(target=migrate) for _ in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

    assert failures == []
    assert tables_of(empty_url) == set(metadata.tables)


def test_a_failed_migration_leaves_nothing_behind(empty_url: str) -> None:
    class Broken(Exception):
        pass

    def fail_half_way() -> None:
        with migrations.transaction(empty_url) as connection:
            metadata.create_all(connection)
            raise Broken

    with pytest.raises(Broken):
        fail_half_way()

    assert tables_of(empty_url) == set()
