"""`python -m migrations`, as a deployment runs it."""

import subprocess
import sys
from pathlib import Path

import pytest

from ops.testbed.postgres import PostgresServer

pytestmark = pytest.mark.integration


def run(*arguments: str, **environ: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "migrations", *arguments]
    environ["PATH"] = "/bin"
    return subprocess.run(command, capture_output=True, text=True, check=False, env=environ)


def test_it_moves_the_database_of_the_settings(tmp_path: Path) -> None:
    home = str(tmp_path / "home")
    assert run("current", SPOOL_HOME=home).stdout == "empty\n"

    upgraded = run("upgrade", SPOOL_HOME=home)

    assert (upgraded.returncode, upgraded.stderr) == (0, "")
    assert upgraded.stdout == run("current", SPOOL_HOME=home).stdout != "empty\n"
    assert (tmp_path / "home" / "spool.db").exists()
    assert run("downgrade", "base", SPOOL_HOME=home).stdout == "empty\n"


def test_settings_that_contradict_stop_it_with_a_sentence() -> None:
    refused = run("upgrade", SPOOL_DATABASE_URL="mysql://h/d")
    assert refused.returncode == 2
    assert refused.stderr == "SPOOL_DATABASE_URL has to be a sqlite: or postgresql: URL.\n"


def test_a_database_without_an_encoding_is_refused_with_what_to_do(postgres: PostgresServer) -> None:
    url = postgres.create_database("ascii", "ENCODING 'SQL_ASCII' TEMPLATE template0")
    refused = run("upgrade", SPOOL_DATABASE_URL=url)
    assert refused.returncode == 2
    assert refused.stderr.startswith("The database's encoding is SQL_ASCII. Spool needs UTF8: make")


def test_a_pooler_that_is_not_known_is_refused() -> None:
    refused = run("upgrade", SPOOL_DATABASE_URL="postgresql://h/d?pooler=session")
    assert refused.returncode == 2
    assert refused.stderr == "In the database URL, pooler must be transaction or absent.\n"
