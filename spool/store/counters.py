"""Counts of what happens rarely in the whole house, kept for monitors: they only grow."""

from sqlalchemy import Connection, select
from sqlalchemy.dialects.postgresql import insert as postgresql_insert
from sqlalchemy.dialects.sqlite import insert as sqlite_insert

from spool.tables import counters

LEASES_LOST = "leases_lost"
"""By pool: leases that ran out, so that the job was taken back from its worker."""


def count_up(tx: Connection, name: str, by: dict[str, int]) -> None:
    """Add to the counts of `name`, each under its label. Locks those rows until the transaction ends."""
    build = sqlite_insert if tx.dialect.name == "sqlite" else postgresql_insert
    for label, number in sorted(by.items()):  # in one order everywhere, so that no two wait for each other
        tx.execute(
            build(counters)
            .values(name=name, label=label, value=number)
            .on_conflict_do_update(
                index_elements=[counters.c.name, counters.c.label],
                set_={"value": counters.c.value + number},
            )
        )


def counted(tx: Connection, name: str) -> dict[str, int]:
    """The counts of `name` by label."""
    rows = tx.execute(
        select(counters.c.label, counters.c.value).where(counters.c.name == name).order_by(counters.c.label)
    )
    return {label: int(value) for label, value in rows}
