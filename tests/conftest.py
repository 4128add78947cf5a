"""What every test may ask for: the real servers of `tests.live.fixtures`, started only when first used."""

from tests.live.fixtures import (  # noqa: F401 - fixtures are found by name here
    _migrated_postgres,
    _migrated_sqlite,
    celery,
    database_url,
    db,
    make_settings,
    postgres,
    postgres_url,
    redis_server,
    redis_url,
    s3_server,
    sqlite_url,
)
