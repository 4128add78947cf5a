"""Time as the database tells it, so that machines whose clocks disagree still agree on leases.

`UtcDateTime` is the only column type for instants: timezone-aware UTC in Python, `timestamptz` on PostgreSQL
and fixed-width text on SQLite, where text order is time order. On PostgreSQL the clock is
`statement_timestamp()`: unlike `now()` it moves on within a transaction, and unlike `clock_timestamp()` an
index can be searched by it.

Cursors: where a page ended, as text that only the query it came from accepts back. Knows no table.
"""

import base64
import binascii
import hashlib
import json
from datetime import date, datetime
from typing import Any

from sqlalchemy import BigInteger, Date, Float, literal
from sqlalchemy.ext.compiler import compiles
from sqlalchemy.sql.compiler import SQLCompiler
from sqlalchemy.sql.expression import FunctionElement

from spool.errors import InvalidRequest
from spool.tables.base import UtcDateTime

_SQLITE_FORMAT = "%Y-%m-%d %H:%M:%f"  # milliseconds; '000' is appended to reach SQLAlchemy's fixed width


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


def write_cursor(created_at: datetime, row_id: str, query: object) -> str:
    """The place after a row, bound to `query` (anything whose repr says all of it)."""
    place = [_fingerprint(query), created_at.isoformat(), row_id]
    return base64.urlsafe_b64encode(json.dumps(place).encode()).decode().rstrip("=")


def read_cursor(cursor: str, query: object) -> tuple[datetime, str]:
    """The place that `write_cursor` wrote. Raises InvalidRequest for other text and for another query's
    cursor."""
    try:
        padded = cursor + "=" * (-len(cursor) % 4)
        fingerprint, created, row_id = json.loads(base64.b64decode(padded, altchars=b"-_", validate=True))
        created_at = datetime.fromisoformat(created)
    except (binascii.Error, ValueError, TypeError, RecursionError):
        raise InvalidRequest("The cursor cannot be read; begin again without one.") from None
    if fingerprint != _fingerprint(query) or not isinstance(row_id, str) or created_at.tzinfo is None:
        raise InvalidRequest("The cursor belongs to another query; begin again without one.")
    return created_at, row_id


def _fingerprint(query: object) -> str:
    return hashlib.sha256(repr(query).encode()).hexdigest()[:16]
