"""Settings of the whole system that can change while it runs: the default model."""

from sqlalchemy import Connection, select

from spool.store.sql import now_utc, upsert
from spool.tables import system_settings

_DEFAULT_MODEL = "default_model"


def default_model(tx: Connection) -> str | None:
    """The model of jobs that name none; None if none was set."""
    value = tx.scalar(select(system_settings.c.value).where(system_settings.c.name == _DEFAULT_MODEL))
    return None if value is None else str(value)


def set_default_model(tx: Connection, model: str) -> None:
    """Make this the model of jobs that name none."""
    change = {"value": model, "updated_at": now_utc()}
    upsert(tx, system_settings, {"name": _DEFAULT_MODEL, **change}, update=change)


def keep_first_default(tx: Connection, model: str) -> str:
    """Set the default model unless there is one; returns the current one. For an API's first start only: a
    worker that joins must not change what jobs of the fleet get."""
    upsert(tx, system_settings, {"name": _DEFAULT_MODEL, "value": model, "updated_at": now_utc()})
    return default_model(tx) or model
