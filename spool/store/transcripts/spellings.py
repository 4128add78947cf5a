"""Which words of the archive have given sounds.

A word has a row for each job that contains it, so a job's end adds rows of its own and a deletion removes
them, and neither waits for another job's. The lookup steps from one word to the next in the index and never
reads all rows of one (a loose index scan).
"""

from collections.abc import Sequence

from sqlalchemy import Connection, String, column, func, select, values

from spool.tables import passage_words


def find_spellings(tx: Connection, sounds: Sequence[str], project: str | None) -> list[str]:
    """The words with these sounds in passages of the project, or of all projects."""
    projects = _projects(tx) if project is None else [project]
    if not projects:
        return []
    pairs = [(each, sound) for each in projects for sound in sounds]
    wanted = values(column("project", String), column("sound", String)).data(pairs).cte("wanted")
    words = passage_words.c
    first = select(func.min(words.token)).where(
        words.project == wanted.c.project, words.sound == wanted.c.sound
    )
    begun = select(wanted.c.project, wanted.c.sound, first.scalar_subquery().label("token"))
    seen = begun.cte("seen", recursive=True)
    following = select(func.min(words.token)).where(
        words.project == seen.c.project, words.sound == seen.c.sound, words.token > seen.c.token
    )
    step = select(seen.c.project, seen.c.sound, following.scalar_subquery()).where(seen.c.token.is_not(None))
    seen = seen.union_all(step)
    return list(tx.scalars(select(seen.c.token).where(seen.c.token.is_not(None)).distinct()))


def _projects(tx: Connection) -> list[str]:
    words = passage_words.c
    seen = select(func.min(words.project).label("project")).cte("projects", recursive=True)
    following = select(func.min(words.project)).where(words.project > seen.c.project).scalar_subquery()
    seen = seen.union_all(select(following).where(seen.c.project.is_not(None)))
    return list(tx.scalars(select(seen.c.project).where(seen.c.project.is_not(None))))
