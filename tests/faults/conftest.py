"""Stacks that live for one module of tests: starting processes is what these tests cost."""

import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import migrations
from ops.testbed.postgres import PostgresServer
from ops.testbed.s3 import S3Server
from ops.testbed.stack import Stack
from spool.broker import EmbeddedRedis, temporary_home
from tests.worker.models.sortformer.golden import STREAMING, archive


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """What waits for so many things one after another needs more than other tests, on a slow machine."""
    for item in items:
        if Path(__file__).parent in item.path.parents and item.get_closest_marker("timeout") is None:
            item.add_marker(pytest.mark.timeout(600))


@pytest.fixture(scope="module")
def broker() -> Iterator[EmbeddedRedis]:
    """A Redis or Valkey that these tests may kill."""
    home = temporary_home()
    server = EmbeddedRedis(home)
    server.start()
    yield server
    server.stop()
    shutil.rmtree(home)


def s3_settings(server: S3Server, bucket: str) -> dict[str, str]:
    """Settings of an object store in a new bucket."""
    server.client().create_bucket(Bucket=bucket)
    return {
        "SPOOL_OBJECTS": f"s3://{bucket}/archive",
        "SPOOL_S3_ENDPOINT_URL": server.endpoint,
        "SPOOL_S3_ACCESS_KEY_ID": server.access_key,
        "SPOOL_S3_SECRET_ACCESS_KEY": server.secret_key,
    }


@pytest.fixture(scope="module")
def stack(
    request: pytest.FixtureRequest,
    tmp_path_factory: pytest.TempPathFactory,
    postgres: PostgresServer,
    broker: EmbeddedRedis,
    s3_server: S3Server,
) -> Iterator[Stack]:
    """PostgreSQL, Valkey or Redis, and S3 over HTTP: what a fleet runs on."""
    name = request.module.__name__.rpartition(".")[2].replace("_", "-")
    url = postgres.create_database(f"spool-{name}")
    migrations.upgrade(url)
    home: Path = tmp_path_factory.mktemp("faults")
    # A model whose decoders may read its own hypotheses, or those of the same weights under another name.
    wenet = Path(__file__).parents[1] / "golden" / "wenet" / "rnnt"
    reader = shutil.copytree(wenet, home / "reader")
    demo = Path(__file__).parents[2] / "models" / "demo"
    models = {"wenet": str(wenet), "reader": str(reader), "demo": str(demo)}
    environment: dict[str, Any] = s3_settings(s3_server, f"spool-{name}")
    stack = Stack(
        home,
        url,
        broker,
        models=models,
        SPOOL_DIARIZATION_MODELS=f"sortformer={archive(STREAMING)}",
        **environment,
    )
    yield stack
    stack.close()


@pytest.fixture(scope="module")
def embedded(
    tmp_path_factory: pytest.TempPathFactory, _migrated_sqlite: Path, broker: EmbeddedRedis
) -> Iterator[Stack]:
    """SQLite, Valkey or Redis, and a folder: what one machine runs on."""
    home: Path = tmp_path_factory.mktemp("embedded")
    shutil.copy(_migrated_sqlite, home / "spool.db")
    stack = Stack(home, f"sqlite:///{home / 'spool.db'}", broker)
    yield stack
    stack.close()


@pytest.fixture(autouse=True)
def _disarmed(request: pytest.FixtureRequest) -> Iterator[None]:
    """No failpoint of one test reaches into the next."""
    yield
    for name in ("stack", "embedded"):
        if name in request.fixturenames:
            request.getfixturevalue(name).disarm()
