"""The command line starts fast: what a command does not need is not imported to list or run it."""

import re
import subprocess
import sys

import pytest

from api.cli.connection import Exit
from api.cli.main import COMMANDS, main
from ops.testbed.invoking import invoke
from spool.domain.options import Options
from tests.api.cli.commands import ROOT

HEAVY = {"fastapi", "starlette", "sqlalchemy", "celery", "boto3", "redis", "alembic"}


def imported(code: str) -> set[str]:
    """The modules that a fresh interpreter has after `code`, and the packages that they are in."""
    script = (
        f"import sys, io; sys.stdout, out = io.StringIO(), sys.stdout; {code}; "
        "there = [name for name, module in sys.modules.items() if module]; "
        "print(*there, *{name.partition('.')[0] for name in there}, file=out)"
    )
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", script], cwd=ROOT, capture_output=True, text=True, check=True
    )
    return set(done.stdout.split())


@pytest.mark.integration
def test_the_help_needs_neither_a_client_nor_a_server() -> None:
    code = "from api.cli.main import main; main(['--help'])"
    assert not imported(code) & (HEAVY | {"httpx", "pydantic"})


@pytest.mark.integration
@pytest.mark.parametrize("name", ["status", "submit", "transcript", "costs", "batch", "webhooks"])
def test_a_client_command_imports_no_server(name: str) -> None:
    modules = imported(f"from api.cli.main import build_app; build_app()[{name!r}]")
    assert "httpx" in modules
    assert not modules & HEAVY


@pytest.mark.integration
def test_a_list_of_jobs_needs_the_schemas_of_jobs_and_a_clients_settings_alone() -> None:
    modules = imported("from api.cli.main import build_app; build_app()['status']")
    schemas = {name.removeprefix("spool.schemas.") for name in modules if name.startswith("spool.schemas.")}
    assert schemas <= {"common", "jobs", "outputs"}
    assert "spool.settings.client" in modules
    assert "spool.settings.model" not in modules


@pytest.mark.parametrize("name", COMMANDS)
def test_the_help_of_each_command_begins_with_its_line_in_the_list(name: str) -> None:
    shown = invoke(main, [name, "--help"])
    assert shown.exit_code == 0
    assert shown.stdout.startswith(f"Usage: spool {name}")
    assert shown.stdout.split("\n\n")[1] == COMMANDS[name].help


def test_a_mistyped_command_is_answered_with_the_nearest_one() -> None:
    shown = invoke(main, ["statsu"])
    assert shown.exit_code == 2
    assert 'Did you mean "status"?' in shown.stderr


@pytest.mark.parametrize("arguments", [["--help"], ["submit", "--help"]])
def test_the_short_help_fits_on_a_screen(arguments: list[str]) -> None:
    brief, full = invoke(main, arguments), invoke(main, [*arguments[:-1], "--help-all"])
    assert 24 <= len(brief.stdout.splitlines()) <= 40
    assert "--help-all" in brief.stdout
    assert len(full.stdout) > len(brief.stdout)


def test_submit_has_every_option_of_a_job() -> None:
    shown = invoke(main, ["submit", "--help-all"]).stdout
    composed = {"diarization", "graph", "rescore"}
    missing = [
        name
        for name in Options.model_fields
        if name not in composed and f"--{name.replace('_', '-')}" not in shown
    ]
    assert missing == []
    assert {"--diarize", "--graph", "--rescore-model"} <= set(re.findall("--[a-z-]+", shown))


@pytest.mark.parametrize(
    ("flags", "sentence"),
    [
        (["--beam", "99"], "--beam: input should be less than or equal to 32."),
        (["--beam", "many"], "--beam: input should be a valid integer."),
        (
            ["--rescore-model", "m", "--rescore-weight", "-1"],
            "--rescore-weight: input should be",
        ),
        (["--rescore-model", "m"], "--rescore-model needs --decoder beam, rescore, attention or wfst"),
        (
            ["--nbest", "3"],
            "--nbest needs --decoder beam, rescore, attention or wfst; it does",
        ),
        (
            ["--pruning", "early", "--decoder", "beam"],
            "--pruning needs --language-model or --boost",
        ),
        (["--boost-weight", "2"], "--boost-weight needs --boost, --boost-file or --glossary."),
    ],
)
def test_an_option_is_refused_in_the_words_of_the_command_line(flags: list[str], sentence: str) -> None:
    shown = invoke(main, ["submit", "a.flac", *flags])
    assert shown.exit_code == 2
    assert f"spool: {sentence}" in " ".join(shown.stderr.split())


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (["submit"], "PATH|URL is required."),
        (["submit", "--model"], "--model needs a value."),
        (["keys", "create"], "--name is required."),
        (["status", "job_1", "one"], "Unexpected argument: one."),
        (["status", "job_1", "one", "two words"], "Unexpected arguments: one 'two words'."),
    ],
)
def test_a_command_line_that_cannot_be_read_says_what_is_wrong_with_it(
    arguments: list[str], sentence: str
) -> None:
    shown = invoke(main, arguments)
    assert (shown.exit_code, shown.output.strip()) == (2, f"spool: {sentence}")


def test_flags_may_stand_between_arguments() -> None:
    for command in ("search", "follow", "rerun"):
        shown = invoke(main, [command, "one", "--url", "http://127.0.0.1:1", "two"])
        assert shown.exit_code == Exit.UNREACHABLE, shown


def test_the_last_of_a_repeated_flag_counts() -> None:
    shown = invoke(main, ["submit", "a.flac", "--beam", "4", "--beam", "99", "--beam", "40"])
    assert "--beam: input should be less than or equal to 32" in " ".join(shown.stderr.split())
    shown = invoke(main, ["submit", "a.flac", "--beam", "99", "--beam", "4"])
    assert "--beam needs --decoder" not in shown.stderr, "4 is the default"
    assert "less than" not in shown.stderr


@pytest.mark.parametrize(
    ("address", "code", "sentence"),
    [
        ("http://127.0.0.1:1", 3, r"No answer from .*refused\)\. Start a server .*spool up`\."),
        ("http://nobody.invalid", 3, r"No answer from http://nobody\.invalid \(.*\)\.$"),
        ("spool.example.org", 2, r"spool\.example\.org is not a server address"),
        ("ftp://spool.example.org", 2, r"http://HOST:PORT or https://HOST\."),
    ],
)
def test_a_server_that_cannot_be_reached_is_named_with_what_may_help(
    address: str, code: int, sentence: str
) -> None:
    shown = invoke(main, ["status", "--url", address])
    assert shown.exit_code == code
    assert re.search(sentence, shown.stderr.strip())
