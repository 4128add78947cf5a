"""`spool audit` as an operator runs it: a process, the settings' own stores, an exit code."""

import json
import os
from pathlib import Path

import pytest

from spool.store import Database
from spool.tables import cost_lines
from tests.api.cli.commands import Commands
from tests.spool.audit.test_audit import Scene

pytestmark = pytest.mark.integration


def test_audit_proves_a_store_and_refuses_a_broken_one(sqlite_url: str, tmp_path: Path) -> None:
    db = Database(sqlite_url)
    scene = Scene(db, tmp_path / "objects")
    stores = {"SPOOL_DATABASE_URL": sqlite_url, "SPOOL_OBJECTS": (tmp_path / "objects").as_uri()}
    commands = Commands(tmp_path / "home", stores)

    told = json.loads(commands.run("audit", "--json").stdout)
    assert told["clean"]
    assert told["looked_at"] == {"jobs": 6, "chunks": 9, "lines": 3, "workers": 1, "objects": 8}
    assert set(told["breaches"].values()) == {0}

    scene.do(cost_lines.delete().where(cost_lines.c.job_id == scene.done))
    scene.objects.delete(f"jobs/{scene.done}/attempt-1/transcript.json")
    told = json.loads(commands.run("audit", "--json", code=1).stdout)
    assert not told["clean"]
    assert {(one["rule"], one["subject"]) for one in told["examples"]} == {
        ("billed", scene.done),
        ("busy", scene.worker),
        ("stored", scene.done),
    }
    orphan = scene.objects.root / "jobs" / "job_x" / "source"
    orphan.parent.mkdir()
    orphan.write_bytes(b"RIFF")
    os.utime(orphan, (0, 0))
    assert commands.run("audit", "--json", code=1).stdout.count('"rule": "orphan"') == 1
    told = json.loads(commands.run("audit", "--json", "--remove-orphans", code=1).stdout)
    assert (told["removed_objects"], told["breaches"]["orphan"]) == (1, 0)
    assert not orphan.exists()
    shown = commands.run("audit", code=1).stdout
    assert f"Its transcript jobs/{scene.done}/attempt-1/transcript.json is not" in shown
    assert "4 breaches" in shown
    assert "stored" not in commands.run("audit", "--no-objects", code=1).stdout.rpartition("orphan")[2]
    db.close()


@pytest.mark.parametrize("command", [["audit"], ["keys", "list"]])
def test_a_command_without_its_database_says_so_and_makes_none(tmp_path: Path, command: list[str]) -> None:
    done = Commands(tmp_path / "home", {}).run(*command, code=2)
    assert done.stderr.startswith(f"spool: There is no database {tmp_path / 'home' / 'spool.db'}. ")
    assert not (tmp_path / "home" / "spool.db").exists()
