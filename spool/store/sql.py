"""The SQL that every query shares: the database's clock, inserts that may find their row there, statements
that write many rows at once, and pages.

Instants come from the database, so that machines whose clocks disagree still agree on leases. On PostgreSQL
the clock is `statement_timestamp()`: unlike `now()` it moves on within a transaction, and unlike
`clock_timestamp()` an index can be searched by it. There many rows are one parameter, a JSON array: so their
statement is compiled and planned once, where one with a parameter for each value is another for each number
of rows. A cursor is accepted only by the query that returned it. What is in the tables is for the modules
beside this one to know.
"""

import base64
import binascii
import hashlib
import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import date, datetime
from functools import cached_property
from types import MappingProxyType
from typing import Any, Generic, TypeVar

from sqlalchemy import (
    JSON,
    BigInteger,
    BindParameter,
    ColumnElement,
    Connection,
    CursorResult,
    Date,
    Executable,
    Float,
    Row,
    Select,
    Table,
    TableValuedAlias,
    Text,
    bindparam,
    cast,
    column,
    func,
    literal,
    select,
    tuple_,
)
from sqlalchemy.dialects import postgresql
from sqlalchemy.dialects.postgresql import insert as postgresql_insert
from sqlalchemy.dialects.sqlite import insert as sqlite_insert
from sqlalchemy.ext.compiler import compiles
from sqlalchemy.sql.compiler import SQLCompiler
from sqlalchemy.sql.expression import FunctionElement
from sqlalchemy.types import TypeDecorator, TypeEngine

from spool.errors import InvalidRequest, NotFound
from spool.tables.base import ID, UtcDateTime

Item = TypeVar("Item")

PAGE_LIMIT = 1000
_SQLITE_FORMAT = "%Y-%m-%d %H:%M:%f"  # milliseconds; '000' is appended to reach SQLAlchemy's fixed width


class _Clock(FunctionElement[Any]):
    """A function of the database's clock, as SQL for each database."""

    inherit_cache = True
    postgresql: str
    sqlite: str


@compiles(_Clock)
def _compile(element: _Clock, compiler: SQLCompiler, **kw: Any) -> str:  # noqa: ANN401
    sql: str = getattr(element, compiler.dialect.name)
    return sql.format(compiler.process(element.clauses, **kw))


class now_utc(_Clock, FunctionElement[datetime]):  # noqa: N801 - reads as the SQL function it is
    """The database's clock at the start of the statement."""

    type = UtcDateTime()
    inherit_cache = True
    postgresql = "statement_timestamp()"
    sqlite = f"(strftime('{_SQLITE_FORMAT}', 'now') || '000')"


class today_utc(_Clock, FunctionElement[date]):  # noqa: N801
    """The database's UTC calendar day."""

    type = Date()
    inherit_cache = True
    postgresql = "CAST(statement_timestamp() AT TIME ZONE 'UTC' AS date)"
    sqlite = "date('now')"


class seconds_from_now(_Clock, FunctionElement[datetime]):  # noqa: N801
    """The database's clock plus so many seconds (negative: before now), to the millisecond."""

    type = UtcDateTime()
    inherit_cache = True
    postgresql = "(statement_timestamp() + make_interval(secs => {}))"
    sqlite = f"(strftime('{_SQLITE_FORMAT}', 'now', {{}} || ' seconds') || '000')"

    def __init__(self, seconds: "float | BindParameter[float]") -> None:
        """A parameter's value is to be rounded to the millisecond by whoever gives it."""
        bound = isinstance(seconds, BindParameter)
        super().__init__(seconds if bound else literal(round(float(seconds), 3), Float()))


class epoch_us(_Clock, FunctionElement[int]):  # noqa: N801
    """The database's clock at the start of the statement, in Unix microseconds (SQLite: to the
    millisecond)."""

    type = BigInteger()
    inherit_cache = True
    postgresql = "CAST(extract(epoch FROM statement_timestamp()) * 1000000 AS bigint)"
    sqlite = "(CAST(round((julianday('now') - 2440587.5) * 86400000.0) AS INTEGER) * 1000)"


def lock_name(tx: Connection, name: str, *, wait: bool = True) -> bool:
    """Hold a name until the transaction ends, as one transaction at a time can; False if another one holds it
    and we do not `wait`. SQLite has one writer anyway."""
    if tx.dialect.name != "postgresql":
        return True
    key = func.hashtextextended(name, 0)
    if wait:
        tx.execute(select(func.pg_advisory_xact_lock(key)))
        return True
    return bool(tx.scalar(select(func.pg_try_advisory_xact_lock(key))))


def read_clock(tx: Connection) -> datetime:
    """The database's time."""
    now: datetime = tx.execute(select(now_utc())).scalar_one()
    return now


def find_row(tx: Connection, query: Executable, missing: str) -> Row[Any]:
    """The one row of the query. Raises NotFound with this message if there is none."""
    row = tx.execute(query).one_or_none()
    if row is None:
        raise NotFound(missing)
    return row


def count_rows(tx: Connection, *conditions: ColumnElement[bool]) -> int:
    """How many rows meet these conditions."""
    return tx.execute(select(func.count()).where(*conditions)).scalar_one()


def count_up_to(
    tx: Connection, most: int, column: ColumnElement[Any], *conditions: ColumnElement[bool]
) -> int:
    """How many rows of the column's table meet these conditions, counted up to `most`."""
    some = select(column).where(*conditions).limit(most).subquery()
    return tx.execute(select(func.count()).select_from(some)).scalar_one()


def count_by(tx: Connection, column: ColumnElement[Any], *conditions: ColumnElement[bool]) -> dict[Any, int]:
    """How many rows that meet these conditions have each value of the column, by value."""
    rows = tx.execute(select(column, func.count()).where(*conditions).group_by(column).order_by(column))
    return {value: int(number) for value, number in rows}


def upsert(
    tx: Connection,
    table: Table,
    values: Mapping[str, Any],
    rows: Sequence[Mapping[str, Any]] | None = None,
    *,
    update: Mapping[str, Any] | None = None,
    where: ColumnElement[bool] | None = None,
    returning: Sequence[ColumnElement[Any]] = (),
) -> CursorResult[Any]:
    """Insert `values`, or each of `rows` with `values` added to it.

    A row whose primary key exists is set to `update` if it meets `where`. Without `update` a row that breaks
    any unique index is left out. `returning` yields the rows that were written.
    """
    build = sqlite_insert if tx.dialect.name == "sqlite" else postgresql_insert
    statement = build(table).values(**values)
    if update is None:
        statement = statement.on_conflict_do_nothing()
    else:
        key = list(table.primary_key.columns)
        statement = statement.on_conflict_do_update(index_elements=key, set_=dict(update), where=where)
    written = statement.returning(*returning) if returning else statement
    return tx.execute(written) if rows is None else tx.execute(written, rows)


ROWS = "rows"
"""The parameter's name."""
_POSTGRESQL = postgresql.dialect()  # type: ignore[no-untyped-call]


def types_of(table: Table, names: Iterable[str]) -> dict[str, TypeEngine[Any]]:
    """The types of these columns of the table, by name."""
    return {name: table.c[name].type for name in names}


def rows_in_json(types: Mapping[str, TypeEngine[Any]]) -> TableValuedAlias:
    """SQL, for PostgreSQL: the rows that the parameter `ROWS` holds, with columns of these types."""
    columns = [column(name, kind) for name, kind in types.items()]
    array = cast(bindparam(ROWS, type_=Text()), JSON())
    given = func.json_to_recordset(array).table_valued(*columns, name="given")
    return given.render_derived(name="given", with_types=True)


def json_of(rows: Sequence[Mapping[str, Any]], types: Mapping[str, TypeEngine[Any]]) -> str:
    """Rows with columns of these types as `rows_in_json` reads them."""
    decorated = {name: kind for name, kind in types.items() if isinstance(kind, TypeDecorator)}
    if decorated:
        rows = [
            {**row, **{n: kind.process_bind_param(row[n], _POSTGRESQL) for n, kind in decorated.items()}}
            for row in rows
        ]
    return json.dumps(rows, default=_hexadecimal)


def _hexadecimal(value: object) -> str:
    """Bytes as PostgreSQL reads them."""
    assert isinstance(value, bytes)
    return f"\\x{value.hex()}"


class ManyRows:
    """An insert of rows with the columns `names`, to each of which the SQL in `values` is added.

    A row whose primary key exists is set to `update`; without it, and with `skip`, one that breaks any unique
    index is left out. `returning` yields the rows that were written. Built when it is first executed.
    """

    def __init__(
        self,
        table: Table,
        names: Sequence[str],
        values: Mapping[str, ColumnElement[Any]] = MappingProxyType({}),
        *,
        update: Mapping[str, Any] | None = None,
        skip: bool = False,
        returning: Sequence[ColumnElement[Any]] = (),
    ) -> None:
        self._table = table
        self._types = types_of(table, names)
        self._values = dict(values)
        self._update = update
        self._skip = skip
        self._returning = returning

    def execute(self, tx: Connection, rows: Sequence[Mapping[str, Any]]) -> CursorResult[Any]:
        """Write the rows, at least one, each with exactly the columns `names`."""
        if tx.dialect.name == "sqlite":
            return tx.execute(self._for_sqlite, rows)
        return tx.execute(self._for_postgresql, {ROWS: json_of(rows, self._types)})

    @cached_property
    def _for_sqlite(self) -> Executable:
        return self._finish(sqlite_insert(self._table).values(**self._values))

    @cached_property
    def _for_postgresql(self) -> Executable:
        given = rows_in_json(self._types)
        chosen = select(*given.c, *self._values.values())
        insert = postgresql_insert(self._table).from_select([*self._types, *self._values], chosen)
        return self._finish(insert)

    def _finish(self, insert: Any) -> Executable:  # noqa: ANN401 - of either dialect
        if self._update is not None:
            key = list(self._table.primary_key.columns)
            insert = insert.on_conflict_do_update(index_elements=key, set_=dict(self._update))
        elif self._skip:
            insert = insert.on_conflict_do_nothing()
        finished: Executable = insert.returning(*self._returning) if self._returning else insert
        return finished


@dataclass(frozen=True, slots=True)
class Page(Generic[Item]):
    """Items, newest first, and the cursor of the page after them (None at the end)."""

    items: tuple[Item, ...]
    next_cursor: str | None


def fetch_page(
    tx: Connection,
    table: Table,
    query: Select[Any],
    read: Callable[[Row[Any]], Item],
    scope: object,
    *,
    cursor: str | None,
    limit: int,
) -> Page[Item]:
    """Up to `limit` rows of `query`, newest first, after `cursor`.

    `query` selects `created_at` and `id` of `table`; `scope` is anything whose repr identifies the query.
    Raises InvalidRequest for a limit out of range and for another query's cursor.
    """
    if not 1 <= limit <= PAGE_LIMIT:
        raise InvalidRequest(f"A page holds 1 to {PAGE_LIMIT} {table.name.replace('_', ' ')}, not {limit}.")
    key = (table.c.created_at, table.c.id)
    if cursor is not None:
        created, row_id = position_of(cursor, scope, 2)
        try:
            created_at = datetime.fromisoformat(created)
        except ValueError:
            raise InvalidRequest("The cursor cannot be read; begin again without one.") from None
        # A row comparison, since both databases search the index by it; written with OR they would scan.
        last_seen = tuple_(literal(created_at, UtcDateTime()), literal(row_id, ID))
        query = query.where(tuple_(*key) < last_seen)
    rows = tx.execute(query.order_by(*(column.desc() for column in key)).limit(limit + 1)).all()
    last = rows[limit - 1] if len(rows) > limit else None
    next_cursor = None if last is None else cursor_of(scope, last.created_at.isoformat(), last.id)
    return Page(tuple(map(read, rows[:limit])), next_cursor)


def cursor_of(scope: object, *position: str) -> str:
    """The cursor of what comes after this position of a query; `scope` is anything whose repr identifies the
    query."""
    return (
        base64.urlsafe_b64encode(json.dumps([_fingerprint(scope), *position]).encode()).decode().rstrip("=")
    )


def position_of(cursor: str, scope: object, size: int) -> list[str]:
    """The position in a cursor: `size` texts. Raises InvalidRequest for another query's."""
    try:
        padded = cursor + "=" * (-len(cursor) % 4)
        fingerprint, *position = json.loads(base64.b64decode(padded, altchars=b"-_", validate=True))
    except (binascii.Error, ValueError, TypeError, RecursionError):
        raise InvalidRequest("The cursor cannot be read; begin again without one.") from None
    texts = [each for each in position if isinstance(each, str)]
    if fingerprint != _fingerprint(scope) or len(position) != size or len(texts) != size:
        raise InvalidRequest("The cursor belongs to another query; begin again without one.")
    return texts


def _fingerprint(scope: object) -> str:
    return hashlib.sha256(repr(scope).encode()).hexdigest()[:16]
