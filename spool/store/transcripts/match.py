"""A query in the language of each database's full-text index, and as a condition on `passages`.

Tokens are letters and digits only, so nothing in them needs quoting. A text is rendered into the statement
instead of being a parameter, since PostgreSQL plans by how frequent its words are.
"""

from collections.abc import Sequence
from typing import Any

from sqlalchemy import (
    BindParameter,
    ColumnElement,
    FromClause,
    Integer,
    SmallInteger,
    String,
    and_,
    bindparam,
    cast,
    column,
    literal_column,
    table,
    true,
)
from sqlalchemy.dialects.postgresql import ARRAY, TSQUERY

from spool.domain.archive.query import Near, Query, Term
from spool.domain.archive.tokens import pairs_of
from spool.tables import passages

_INDEX = table("passage_index", column("rowid", Integer))
_ALTERNATIVES = table("passage_index_alternatives", column("rowid", Integer))
_FTS5_SIGNS = ("AND", "OR", " *")
_ANY = "~"
"""A token that no passage has, for words without a known spelling."""


def matching(dialect: str, query: Query, alternatives: bool = False) -> ColumnElement[bool]:
    """SQL: the passage may match the query; with `alternatives` also by a recognised alternative to one of
    its words."""
    if alternatives:
        expression = _of_alternatives(query, *(("&", "|", ":*") if dialect == "postgresql" else _FTS5_SIGNS))
    else:
        expression = _tsquery(query) if dialect == "postgresql" else _fts5(query)
    written: BindParameter[str] = bindparam("terms", expression, unique=True, literal_execute=True)
    if dialect == "postgresql":
        terms = passages.c.alternative_terms if alternatives else passages.c.terms
        condition = terms.bool_op("@@")(cast(written, TSQUERY))
        pairs = phrase_pairs(query)
        if not pairs:
            return condition
        if all(isinstance(each, Term) and len(each.tokens) > 1 for each in query.wanted):
            # As a filter, since the index of the words takes longer to rule passages out than reading the
            # few.
            condition = condition.is_(true())
        return and_(passages.c.pairs.bool_op("@>")(_smallints(pairs)), condition)
    index = _ALTERNATIVES if alternatives else _INDEX
    return literal_column(index.name).bool_op("MATCH")(written)


def phrase_pairs(query: Query) -> list[int]:
    """The pairs of tokens that a passage with the query's phrases must have. PostgreSQL's index knows which
    passages have all words of a phrase, but has to read each of them to check the order."""
    return sorted(
        {
            pair
            for clause in query.wanted
            for term in ((clause.left, clause.right) if isinstance(clause, Near) else (clause,))
            if not term.others
            for pair in pairs_of(term.tokens[:-1] if term.prefix else term.tokens)
        }
    )


def passage_index(
    dialect: str, alternatives: bool = False
) -> tuple[FromClause, ColumnElement[int], ColumnElement[str]]:
    """The table for the condition `matching`, and its columns with the passage's number and project.

    SQLite's index yields its numbers in order, so that a page reads no more than it shows; a condition on the
    project must not make it use an index of `passages` instead.
    """
    if dialect == "postgresql":
        return passages, passages.c.id, passages.c.project
    index = _ALTERNATIVES if alternatives else _INDEX
    joined = index.join(passages, passages.c.id == index.c.rowid)
    return joined, index.c.rowid, literal_column("+passages.project")


def _of_alternatives(query: Query, both: str, either: str, begins: str) -> str:
    """All words of the query, in any order, among the passage's words or their alternatives, at least one of
    them among the alternatives."""
    quote = "'" if both == "&" else '"'
    words, heard = [], []
    for clause in query.wanted:
        for term in (clause.left, clause.right) if isinstance(clause, Near) else (clause,):
            ways = term.ways or ((_ANY,),)
            together = []
            for way in ways:
                each_token = []
                for at, token in enumerate(way):
                    begin = begins if term.prefix and at == len(way) - 1 else ""
                    own, other = (f"{quote}{sign}{token}{quote}{begin}" for sign in ("", "~"))
                    each_token.append(f"({own} {either} {other})")
                    heard.append(other)
                together.append(f" {both} ".join(each_token))
            words.append(f"({f' {either} '.join(f'({each})' for each in together)})")
    return f" {both} ".join([*words, f"({f' {either} '.join(heard)})"])


def _smallints(numbers: Sequence[int]) -> ColumnElement[Any]:
    """Rendered into the statement, since the planner uses the values."""
    written: BindParameter[str] = bindparam(
        "pairs", f"{{{','.join(map(str, numbers))}}}", String(), unique=True, literal_execute=True
    )
    return cast(written, ARRAY(SmallInteger))


def _tsquery(query: Query) -> str:
    wanted = [_ts_near(each) if isinstance(each, Near) else _ts_term(each) for each in query.wanted]
    return " & ".join(wanted + [f"!{_ts_term(term)}" for term in query.unwanted])


def _ts_term(term: Term) -> str:
    return f"({' | '.join(_ts_way(way, term.prefix) for way in term.ways or ((_ANY,),))})"


def _ts_way(way: Sequence[str], prefix: bool = False) -> str:
    tokens = " <-> ".join(f"'{token}'" for token in way)
    return f"({tokens}{':*' if prefix else ''})"


def _ts_near(near: Near) -> str:
    """Each distance separately: PostgreSQL measures it between the last words of both sides."""
    ways = []
    for one, other in ((near.left, near.right), (near.right, near.left)):
        left = _ts_term(one)
        ways += [
            f"({left} <{apart + len(way)}> {_ts_way(way, other.prefix)})"
            for way in other.ways or ((_ANY,),)
            for apart in range(near.distance + 1)
        ]
    return f"({' | '.join(ways)})"


def _fts5(query: Query) -> str:
    wanted = [_fts_near(each) if isinstance(each, Near) else _fts_term(each) for each in query.wanted]
    unwanted = " OR ".join(_fts_term(term) for term in query.unwanted)
    both = " AND ".join(wanted)
    return f"({both}) NOT ({unwanted})" if unwanted else both


def _fts_phrases(term: Term) -> list[str]:
    return [f'"{" ".join(way)}"{" *" if term.prefix else ""}' for way in term.ways or ((_ANY,),)]


def _fts_term(term: Term) -> str:
    return f"({' OR '.join(_fts_phrases(term))})"


def _fts_near(near: Near) -> str:
    ways = [
        f"NEAR({left} {right}, {near.distance})"
        for left in _fts_phrases(near.left)
        for right in _fts_phrases(near.right)
    ]
    return f"({' OR '.join(ways)})"
