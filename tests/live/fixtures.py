"""Real servers as fixtures: PostgreSQL, Redis or Valkey, and an S3 server over HTTP. Each starts once a
session.

`database_url` and `db` run a test on SQLite and on PostgreSQL. Tables are emptied between tests, which is
many times faster than making them anew.
"""

import os
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from celery import Celery
from moto.server import ThreadedMotoServer
from sqlalchemy import create_engine, text

import migrations
from ops.testbed.postgres import PostgresServer
from ops.testbed.s3 import S3Server
from spool.broker import EmbeddedRedis, temporary_home
from spool.broker.celery_app import celery_app
from spool.settings import Settings, load_settings
from spool.store import Database, database
from spool.tables import metadata

DIALECTS = ("sqlite", "postgresql")

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="session", autouse=True)
def patient_database() -> Iterator[None]:
    """Let transactions wait for a test's process, which may stand still for seconds on a crowded machine;
    tests of frozen processes say otherwise themselves."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(database, "IDLE_IN_TRANSACTION_S", 60)
        yield


@pytest.fixture(scope="session")
def postgres() -> Iterator[PostgresServer]:
    server = PostgresServer()
    try:
        server.start()
        yield server
    finally:
        server.close()


@pytest.fixture(scope="session")
def _migrated_postgres(postgres: PostgresServer) -> str:
    url = postgres.create_database("spool_test")
    migrations.upgrade(url)
    return url


@pytest.fixture(scope="session")
def _migrated_sqlite(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("sqlite") / "template.db"
    migrations.upgrade(f"sqlite:///{path}")
    return path


@pytest.fixture
def postgres_url(_migrated_postgres: str) -> str:
    """A migrated, empty PostgreSQL database."""
    engine = create_engine(_migrated_postgres)
    with engine.begin() as connection:
        names = ", ".join(table.name for table in metadata.sorted_tables)
        connection.execute(text(f"TRUNCATE {names} RESTART IDENTITY CASCADE"))
    engine.dispose()
    return _migrated_postgres


@pytest.fixture
def sqlite_url(_migrated_sqlite: Path, tmp_path: Path) -> str:
    """A migrated, empty SQLite database."""
    path = tmp_path / "spool.db"
    shutil.copy(_migrated_sqlite, path)
    return f"sqlite:///{path}"


@pytest.fixture(params=DIALECTS)
def database_url(request: pytest.FixtureRequest) -> str:
    """A migrated, empty database: the test runs on SQLite and on PostgreSQL."""
    return str(request.getfixturevalue("sqlite_url" if request.param == "sqlite" else "postgres_url"))


@pytest.fixture
def db(database_url: str) -> Iterator[Database]:
    own = Database(database_url)
    yield own
    own.close()


@pytest.fixture(scope="session")
def redis_server() -> Iterator[EmbeddedRedis]:
    home = temporary_home()
    try:
        with EmbeddedRedis(home) as server:
            yield server
    finally:
        shutil.rmtree(home, ignore_errors=True)


@pytest.fixture
def redis_url(redis_server: EmbeddedRedis) -> str:
    """An empty Redis."""
    with redis_server.client() as client:
        client.flushall()
    return redis_server.url


@pytest.fixture(scope="session")
def s3_server() -> Iterator[S3Server]:
    """moto's S3 over real HTTP, or what SPOOL_TEST_S3_ENDPOINT, _ACCESS_KEY and _SECRET_KEY name."""
    if endpoint := os.environ.get("SPOOL_TEST_S3_ENDPOINT"):
        access_key, secret_key = (
            os.environ[f"SPOOL_TEST_S3_{name}"] for name in ("ACCESS_KEY", "SECRET_KEY")
        )
        yield S3Server(endpoint, access_key, secret_key)
        return
    server = ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
    server.start()
    try:
        host, port = server.get_host_and_port()
        yield S3Server(f"http://{host}:{port}")
    finally:
        server.stop()


@pytest.fixture
def make_settings(tmp_path: Path) -> Callable[..., Settings]:
    """Settings of a home of this test's own, with overrides and without this machine's environment."""

    def make(**overrides: object) -> Settings:
        overrides.setdefault("models", {"demo-tdt": str(ROOT / "models" / "demo")})
        return load_settings({}, home=tmp_path / "home", **overrides)

    return make


@pytest.fixture
def celery(make_settings: Callable[..., Settings], redis_url: str) -> Iterator[Celery]:
    """A Celery client on an empty Redis."""
    app = celery_app(make_settings(redis_url=redis_url))
    yield app
    app.close()
