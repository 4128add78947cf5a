"""docs/api.md speaks of what there is: its routes, codes and commands exist, and none is left out."""

import re

from api.app import create_app
from api.cli.main import SUBCOMMANDS
from api.openapi.jobs import problem_codes
from spool.settings import load_settings
from tests.api.cli.commands import ROOT

TEXT = (ROOT / "docs" / "api.md").read_text(encoding="utf-8")


def test_every_route_is_told() -> None:
    for path in create_app(load_settings({})).openapi()["paths"]:
        shown = re.escape(path).replace(re.escape("{job_id}"), r"job_\w+…?")
        shown = shown.replace(re.escape("{batch_id}"), r"bat_\w+…?")
        shown = shown.replace(re.escape("{webhook_id}"), r"whk_\w+…?")
        shown = shown.replace(re.escape("{delivery_id}"), r"msg_\w+…?")
        assert re.search(shown, TEXT), path


def test_every_code_of_a_problem_is_told() -> None:
    for code in problem_codes():
        assert f"`{code}`" in TEXT, code


def test_the_commands_that_are_shown_exist() -> None:
    shown = set(re.findall(r"^\$ spool (\w+)|`spool (\w+)", TEXT, re.MULTILINE))
    assert {first or second for first, second in shown} <= set(SUBCOMMANDS)
