"""What glossaries and language models share: each has versions under a project's name, which never change."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

from sqlalchemy import ColumnElement, Connection, Row, Table, delete, func, select

from spool.errors import Conflict, NotFound
from spool.store.sql import find_row, now_utc, upsert

Version = TypeVar("Version")

MOST_VERSIONS = 1000
"""The most versions of one name."""


@dataclass(frozen=True, slots=True)
class Versions(Generic[Version]):
    """The versions in one table, whose columns include project, name, version and sha256."""

    table: Table
    read: Callable[[Row[Any]], Version]
    noun: str
    nouns: str
    most_names: int
    """The most names of one project."""

    def add(self, tx: Connection, project: str, name: str, author: str, values: Mapping[str, Any]) -> Version:
        """Write a new version with these values. Raises Conflict if another request adds one at the same
        moment, and for too many."""
        c = self.table.c
        latest = tx.scalar(select(func.max(c.version)).where(*self.of_name(project, name)))
        title = f"{self.noun.capitalize()} {name}"
        if latest is not None and latest >= MOST_VERSIONS:
            raise Conflict(f"{title} has {latest} versions, the most allowed; use another name.")
        names = select(func.count(func.distinct(c.name))).where(c.project == project)
        if latest is None and tx.execute(names).scalar_one() >= self.most_names:
            raise Conflict(f"Project {project} has {self.most_names} {self.nouns}; delete one first.")
        key = {"project": project, "name": name, "version": (latest or 0) + 1}
        made = {"created_at": now_utc(), "created_by": author}
        if upsert(tx, self.table, {**key, **made, **values}, returning=[c.version]).one_or_none() is None:
            raise Conflict(f"{title} is being changed by another request; try again.")
        return self.get(tx, project, name)

    def find_latest(self, tx: Connection, project: str, name: str) -> Version | None:
        """The latest version, if there is any."""
        row = tx.execute(self._newest_first(project, name).limit(1)).one_or_none()
        return None if row is None else self.read(row)

    def get(self, tx: Connection, project: str, name: str, version: int | None = None) -> Version:
        """A version, by default the latest. Raises NotFound."""
        query = self._newest_first(project, name)
        if version is not None:
            query = query.where(self.table.c.version == version)
        wanted = name if version is None else f"{name}@{version}"
        return self.read(find_row(tx, query.limit(1), f"Project {project} has no {self.noun} {wanted}."))

    def list_latest(self, tx: Connection, project: str | None = None) -> list[Version]:
        """The latest version of every name, or of a project's, by project and name."""
        c = self.table.c
        newest = select(c.project, c.name, func.max(c.version).label("version")).group_by(c.project, c.name)
        if project is not None:
            newest = newest.where(c.project == project)
        latest = newest.subquery()
        same = (c.project == latest.c.project) & (c.name == latest.c.name) & (c.version == latest.c.version)
        query = select(*c).select_from(self.table.join(latest, same)).order_by(c.project, c.name)
        return list(map(self.read, tx.execute(query)))

    def remove(self, tx: Connection, project: str, name: str) -> set[str]:
        """Delete all versions of a name; returns their hashes. Raises NotFound."""
        gone = delete(self.table).where(*self.of_name(project, name)).returning(self.table.c.sha256)
        digests = set(tx.scalars(gone))
        if not digests:
            raise NotFound(f"Project {project} has no {self.noun} {name}.")
        return digests

    def of_name(self, project: str, name: str) -> tuple[ColumnElement[bool], ...]:
        """SQL: the row is a version of this name."""
        return self.table.c.project == project, self.table.c.name == name

    def _newest_first(self, project: str, name: str) -> Any:  # noqa: ANN401 - a select of these columns
        c = self.table.c
        return select(*c).where(*self.of_name(project, name)).order_by(c.version.desc())
