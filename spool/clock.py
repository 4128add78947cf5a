"""Time as the database tells it, so that machines whose clocks disagree still agree on leases.

`UtcDateTime` is the only column type for instants: timezone-aware UTC in Python, `timestamptz` on PostgreSQL
and fixed-width text on SQLite, where text order is time order. On PostgreSQL the clock is
`statement_timestamp()`: unlike `now()` it moves on within a transaction, and unlike `clock_timestamp()` an
index can be searched by it.
"""

from datetime import UTC, date, datetime
from typing import Any

from sqlalchemy import BigInteger, Date, DateTime, Dialect, Float, literal
from sqlalchemy.ext.compiler import compiles
from sqlalchemy.sql.compiler import SQLCompiler
from sqlalchemy.sql.expression import FunctionElement
from sqlalchemy.types import TypeDecorator

_SQLITE_FORMAT = "%Y-%m-%d %H:%M:%f"  # milliseconds; '000' is appended to reach SQLAlchemy's fixed width


class UtcDateTime(TypeDecorator[datetime]):
    """An instant. Refuses naive datetimes; always answers in UTC."""

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
        """Give back an aware UTC datetime."""
        if value is None:
            return None
        return value.replace(tzinfo=UTC) if value.tzinfo is None else value.astimezone(UTC)


class now_utc(FunctionElement[datetime]):  # noqa: N801 - reads as the SQL function it is
    """The database's clock at the start of the statement."""

    type = UtcDateTime()
    inherit_cache = True


class today_utc(FunctionElement[date]):  # noqa: N801
    """The database's UTC calendar day."""

    type = Date()
    inherit_cache = True


class seconds_from_now(FunctionElement[datetime]):  # noqa: N801
    """The database's clock plus so many seconds (negative: before now), to the millisecond."""

    type = UtcDateTime()
    inherit_cache = True

    def __init__(self, seconds: float) -> None:
        super().__init__(literal(round(float(seconds), 3), Float()))


@compiles(now_utc, "postgresql")
def _now_postgresql(element: now_utc, compiler: SQLCompiler, **kw: Any) -> str:  # noqa: ANN401, ARG001
    return "statement_timestamp()"


@compiles(now_utc, "sqlite")
def _now_sqlite(element: now_utc, compiler: SQLCompiler, **kw: Any) -> str:  # noqa: ANN401, ARG001
    return f"(strftime('{_SQLITE_FORMAT}', 'now') || '000')"


@compiles(today_utc, "postgresql")
def _today_postgresql(element: today_utc, compiler: SQLCompiler, **kw: Any) -> str:  # noqa: ANN401, ARG001
    return "CAST(statement_timestamp() AT TIME ZONE 'UTC' AS date)"


@compiles(today_utc, "sqlite")
def _today_sqlite(element: today_utc, compiler: SQLCompiler, **kw: Any) -> str:  # noqa: ANN401, ARG001
    return "date('now')"


@compiles(seconds_from_now, "postgresql")
def _later_postgresql(element: seconds_from_now, compiler: SQLCompiler, **kw: Any) -> str:  # noqa: ANN401
    return f"(statement_timestamp() + make_interval(secs => {compiler.process(element.clauses, **kw)}))"


@compiles(seconds_from_now, "sqlite")
def _later_sqlite(element: seconds_from_now, compiler: SQLCompiler, **kw: Any) -> str:  # noqa: ANN401
    seconds = compiler.process(element.clauses, **kw)
    return f"(strftime('{_SQLITE_FORMAT}', 'now', {seconds} || ' seconds') || '000')"


class epoch_us(FunctionElement[int]):  # noqa: N801
    """The database's clock at the start of the statement, in Unix microseconds (SQLite: to the
    millisecond)."""

    type = BigInteger()
    inherit_cache = True


@compiles(epoch_us, "postgresql")
def _micros_postgresql(element: epoch_us, compiler: SQLCompiler, **kw: Any) -> str:  # noqa: ANN401, ARG001
    return "CAST(extract(epoch FROM statement_timestamp()) * 1000000 AS bigint)"


@compiles(epoch_us, "sqlite")
def _micros_sqlite(element: epoch_us, compiler: SQLCompiler, **kw: Any) -> str:  # noqa: ANN401, ARG001
    return "(CAST(round((julianday('now') - 2440587.5) * 86400000.0) AS INTEGER) * 1000)"
