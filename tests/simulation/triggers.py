"""Triggers that write each change of a job and of its chunks into a table, within the same transaction.

So nothing is missed whatever the product does, and nothing is seen that was rolled back.
"""

COLUMNS = {
    "state": "TEXT",
    "attempt": "INTEGER",
    "lease_owner": "TEXT",
    "lease_until": "TEXT",
    "crashes": "INTEGER",
    "error_code": "TEXT",
    "cancel_requested": "BOOLEAN",
    "retries": "INTEGER",
    "suspects": "TEXT",
}
"""What a job's change is."""
FACTS = {
    "project": "TEXT",
    "forecast_seconds": "DOUBLE PRECISION",
    "done_seconds": "DOUBLE PRECISION",
    "reused_from": "TEXT",
    "not_before": "TEXT",
}
"""Known of a job before and after each change of the `COLUMNS`."""
_NAMES = (*COLUMNS, *FACTS)
_PAIRS = ", ".join(f"old_{each}, new_{each}" for each in _NAMES)
_TYPED = ", ".join(f"old_{name} {kind}, new_{name} {kind}" for name, kind in (COLUMNS | FACTS).items())
_AT = {
    "sqlite": "strftime('%Y-%m-%d %H:%M:%f', 'now')",
    "postgresql": "to_char(statement_timestamp() AT TIME ZONE 'UTC', 'YYYY-MM-DD HH24:MI:SS.MS')",
}
_TRIGGER = {
    "sqlite": "CREATE TRIGGER {name} AFTER {event} ON {table} {when} BEGIN {body} END;",
    "postgresql": """
CREATE FUNCTION {name}() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN {body} RETURN NULL; END $$;
CREATE TRIGGER {name} AFTER {event} ON {table} FOR EACH ROW {when} EXECUTE FUNCTION {name}();
""",
}
_NUMBER = {"sqlite": "INTEGER PRIMARY KEY", "postgresql": "BIGSERIAL"}


_CHUNK_SAVED = """
INSERT INTO simulated_history (at, job, chunk, new_attempt)
    VALUES ({at}, NEW.job_id, NEW.number, NEW.attempt);
INSERT INTO simulated_history (at, job, chunk, new_state, old_attempt, new_attempt)
    SELECT {at}, id, NEW.number, state, attempt, NEW.attempt FROM jobs
    WHERE id = NEW.job_id AND (attempt <> NEW.attempt OR state NOT IN ('running', 'done'));
"""
"""The second row says that a chunk was saved by who did not hold the job."""
_CHUNK_DROPPED = """
INSERT INTO simulated_history (at, job, chunk, old_attempt)
    VALUES ({at}, OLD.job_id, OLD.number, OLD.attempt);
"""
_SUBMITTED = "INSERT INTO simulated_history (at, job, new_state) VALUES ({at}, NEW.id, NEW.state);"
_CHANGED = "INSERT INTO simulated_history (at, job, {pairs}) VALUES ({at}, NEW.id, {values});"


def make_script(dialect: str) -> str:
    """The statements that make the table and the triggers."""
    old, new = ({each: _as_text(dialect, f"{row}.{each}", each) for each in _NAMES} for row in ("OLD", "NEW"))
    distinct = "IS NOT" if dialect == "sqlite" else "IS DISTINCT FROM"
    changed = " OR ".join(f"{old[each]} {distinct} {new[each]}" for each in COLUMNS)
    values = ", ".join(f"{old[each]}, {new[each]}" for each in _NAMES)
    triggers = (
        ("jobs", "UPDATE", f"WHEN ({changed})", _CHANGED),
        ("jobs", "INSERT", "", _SUBMITTED),
        ("chunks", "INSERT", "", _CHUNK_SAVED),
        ("chunks", "DELETE", "", _CHUNK_DROPPED),
    )
    statements = [
        f"CREATE TABLE simulated_history"
        f" (number {_NUMBER[dialect]}, at TEXT, job TEXT, chunk INTEGER, {_TYPED});"
    ]
    for table, on, when, body in triggers:
        name, done = (
            f"simulated_{table}_{on.lower()}",
            body.format(at=_AT[dialect], pairs=_PAIRS, values=values),
        )
        statements.append(_TRIGGER[dialect].format(name=name, table=table, event=on, when=when, body=done))
    return "\n".join(statements)


def _as_text(dialect: str, value: str, name: str) -> str:
    """The value, if need be in SQLite's form."""
    if name in ("lease_until", "not_before") and dialect == "postgresql":
        return f"to_char({value} AT TIME ZONE 'UTC', 'YYYY-MM-DD HH24:MI:SS.US')"
    return f"CAST({value} AS TEXT)" if name == "suspects" else value
