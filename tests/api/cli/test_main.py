"""The command line starts fast: what a command does not need is not imported to list or run it."""

import re
import subprocess
import sys

import pytest
from typer.testing import CliRunner

from api.cli.main import SUBCOMMANDS, app, load_subcommand, main
from tests.api.cli.commands import ROOT

HEAVY = {"fastapi", "starlette", "sqlalchemy", "celery", "boto3", "redis", "alembic"}


def imported(code: str) -> set[str]:
    """Top-level modules that a fresh interpreter has after `code`."""
    script = f"import sys; {code}; print(*{{name.partition('.')[0] for name in sys.modules}})"
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", script], cwd=ROOT, capture_output=True, text=True, check=True
    )
    return set(done.stdout.split())


@pytest.mark.integration
def test_the_help_needs_neither_a_client_nor_a_server() -> None:
    code = (
        "from typer.testing import CliRunner as R; from api.cli.main import app; R().invoke(app, ['--help'])"
    )
    assert not imported(code) & (HEAVY | {"httpx", "pydantic"})


@pytest.mark.integration
@pytest.mark.parametrize("name", ["status", "submit", "transcript", "costs", "batch", "webhooks"])
def test_a_client_command_imports_no_server(name: str) -> None:
    modules = imported(f"from api.cli.main import load_subcommand; load_subcommand({name!r})")
    assert "httpx" in modules
    assert not modules & HEAVY


@pytest.mark.parametrize("name", SUBCOMMANDS)
def test_the_help_of_each_command_begins_with_its_line_in_the_list(name: str) -> None:
    assert load_subcommand(name).help.splitlines()[0] == SUBCOMMANDS[name].help
    shown = CliRunner().invoke(app, [name, "--help"])
    assert shown.exit_code == 0
    assert f"Usage: root {name}" in shown.stdout


def test_a_mistyped_command_is_answered_with_the_nearest_one() -> None:
    shown = CliRunner().invoke(app, ["statsu"])
    assert shown.exit_code == 2
    assert "Did you mean 'status'?" in shown.stderr


@pytest.mark.parametrize(
    ("address", "code", "sentence"),
    [
        ("http://127.0.0.1:1", 3, r"No answer from .*refused\)\. Start a server .*spool up`\."),
        ("http://nobody.invalid", 3, r"No answer from http://nobody\.invalid \(.*\)\.$"),
        ("spool.example.org", 2, r"spool\.example\.org is no address of a server"),
        ("ftp://spool.example.org", 2, r"http://HOST:PORT or https://HOST\."),
    ],
)
def test_a_server_that_cannot_be_reached_is_named_with_what_may_help(
    address: str, code: int, sentence: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as ended:
        main(["status", "--url", address])
    assert ended.value.code == code
    assert re.search(sentence, capsys.readouterr().err.strip())
