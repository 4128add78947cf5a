"""What all tables share: one registry with named constraints, and the columns' common types.

`UtcDateTime` is the only column type for instants: timezone-aware UTC in Python, `timestamptz` on PostgreSQL
and fixed-width text on SQLite, where text order is time order. The database's clock is in `spool.store.sql`.
"""

from datetime import UTC, datetime

from sqlalchemy import Column, DateTime, Dialect, ForeignKey, Index, MetaData, String, text
from sqlalchemy.types import TypeDecorator

metadata = MetaData(
    naming_convention={
        "ix": "ix_%(table_name)s_%(column_0_N_name)s",
        "uq": "uq_%(table_name)s_%(column_0_N_name)s",
        "ck": "ck_%(table_name)s_%(constraint_name)s",
        "fk": "fk_%(table_name)s_%(column_0_name)s_%(referred_table_name)s",
        "pk": "pk_%(table_name)s",
    }
)

ID = String(40)
NAME = String(200)
QUEUE = String(1000)


def job_key() -> Column[str]:
    """The job that a row belongs to, as the first part of its key."""
    return Column("job_id", ID, ForeignKey("jobs.id", ondelete="CASCADE"), primary_key=True)


class UtcDateTime(TypeDecorator[datetime]):
    """An instant. Rejects naive datetimes; returns aware ones in UTC."""

    impl = DateTime(timezone=True)
    cache_ok = True

    def process_bind_param(self, value: datetime | None, dialect: Dialect) -> datetime | None:
        """Convert to UTC; SQLite stores it without the zone."""
        if value is None:
            return None
        if value.tzinfo is None:
            raise ValueError("an instant needs a time zone")
        value = value.astimezone(UTC)
        return value.replace(tzinfo=None) if dialect.name == "sqlite" else value

    def process_result_value(
        self,
        value: datetime | None,
        dialect: Dialect,  # noqa: ARG002 - SQLAlchemy's signature
    ) -> datetime | None:
        """Return an aware UTC datetime."""
        if value is None:
            return None
        return value.replace(tzinfo=UTC) if value.tzinfo is None else value.astimezone(UTC)


def partial_index(name: str, *columns: str, where: str, unique: bool = False) -> Index:
    """An index of the rows that meet a condition, on both databases."""
    condition = text(where)
    return Index(name, *columns, unique=unique, sqlite_where=condition, postgresql_where=condition)
