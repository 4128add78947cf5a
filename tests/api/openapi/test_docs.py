"""docs/api.md leaves out no route and no error code. (Commands and paths: tests/test_docs.py.)"""

import re

from api.app import create_app
from api.problems import PROBLEMS
from spool.settings import load_settings
from tests.api.cli.commands import ROOT

TEXT = (ROOT / "docs" / "api.md").read_text(encoding="utf-8")


def test_every_route_is_described() -> None:
    for path in create_app(load_settings({})).openapi()["paths"]:
        # An example stands in for a parameter, as job_01M7… for {job_id}.
        path = (
            path.replace("{revision}", "3")
            .replace("{passage}", "12")
            .replace("{glossary}", "names")
            .replace("{language_model}", "parish")
            .replace("{model}", "parakeet")
        )
        shown = re.sub(r"\\\{\w+\\\}", r"[a-z]+_\\w+…?", re.escape(path))
        assert re.search(shown, TEXT), path


def test_every_error_code_is_described() -> None:
    for code in {known.code or name for name, known in PROBLEMS.items()}:
        assert f"`{code}`" in TEXT, code
