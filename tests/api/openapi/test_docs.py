"""docs/api.md leaves out no route and no error code. (Commands and paths: tests/test_docs.py.)"""

import re

from api.app import create_app
from api.openapi.jobs import problem_codes
from spool.settings import load_settings
from tests.api.cli.commands import ROOT

TEXT = (ROOT / "docs" / "api.md").read_text(encoding="utf-8")


def test_every_route_is_described() -> None:
    for path in create_app(load_settings({})).openapi()["paths"]:
        shown = re.escape(path).replace(re.escape("{job_id}"), r"job_\w+…?")
        shown = shown.replace(re.escape("{batch_id}"), r"bat_\w+…?")
        shown = shown.replace(re.escape("{webhook_id}"), r"whk_\w+…?")
        shown = shown.replace(re.escape("{delivery_id}"), r"msg_\w+…?")
        shown = shown.replace(re.escape("{source_id}"), r"src_\w+…?").replace(re.escape("{name}"), r"\w+")
        assert re.search(shown, TEXT), path


def test_every_error_code_is_described() -> None:
    for code in problem_codes():
        assert f"`{code}`" in TEXT, code
