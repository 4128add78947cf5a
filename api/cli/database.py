"""The settings' database, for commands that work without an API."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from sqlalchemy import make_url

from spool.errors import SettingsError
from spool.settings import Settings
from spool.store import Database


@contextmanager
def open_database(settings: Settings) -> Iterator[Database]:
    """Raises SettingsError if the database is a file that does not exist, which opening would create."""
    url = make_url(settings.database_url)
    if url.get_backend_name() == "sqlite" and url.database and not Path(url.database).exists():
        raise SettingsError(
            f"There is no database {url.database}. Run the command in the folder where `spool up` was run, "
            "or give its home as SPOOL_HOME."
        )
    database = Database(settings.database_url)
    try:
        yield database
    finally:
        database.close()
