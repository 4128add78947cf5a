"""Writes the reference in `docs/command-line.md` from the declarations of both commands, and the options that
the typed client takes:

.venv/bin/python -m ops.command_line
"""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from annotated_types import Ge, Gt, Le, Lt
from cyclopts import App
from cyclopts.argument import Argument
from pydantic import BaseModel
from pydantic.fields import FieldInfo

from api.cli.main import build_app as build_spool
from ops.client_options import FIELDS, MODULE, client_fields, client_options
from spool.commandline.app import GROUPS
from spool.domain.declaration import declaration_of, flag_of, model_in
from spool.domain.options import AskedOptions
from worker.cli.main import build_app as build_worker

PAGE = Path(__file__).parents[1] / "docs" / "command-line.md"
MARK = "<!-- Written by ops/command_line.py from the declarations of the commands. -->\n"
_EVERYWHERE = ("--url", "--json")
"""Flags of every client command, described above the reference."""


def reference() -> str:
    """Both commands and the options of jobs, as Markdown."""
    parts = ["## Options of jobs\n", *_option_tables()]
    for app in (build_spool(), build_worker()):
        parts += [f"## Commands of {app.name[0]}\n", *_commands(app, app.name[0])]
    return MARK + "\n" + "\n".join(parts)


def with_reference(page: str) -> str:
    """The page with its reference renewed."""
    return page.partition(MARK)[0] + reference()


def commands(app: App, path: str) -> Iterator[tuple[str, App]]:
    """Every command below an app, with the words that call it."""
    for name in app:
        if name.startswith("-"):
            continue
        below = list(commands(app[name], f"{path} {name}"))
        yield from below or [(f"{path} {name}", app[name])]


def _option_tables() -> Iterator[str]:
    rows: dict[str, list[str]] = {}
    for group, row in _option_rows(AskedOptions):
        rows.setdefault(group, []).append(row)
    for group in GROUPS:
        if group in rows:
            yield f"### {group}\n\n| option | meaning | values | applies to |\n| --- | --- | --- | --- |"
            yield "\n".join(rows[group]) + "\n"


def _option_rows(model: type[BaseModel]) -> Iterator[tuple[str, str]]:
    for name, field in model.model_fields.items():
        option, nested = declaration_of(model, name), model_in(field)
        if option is None:
            continue
        if nested is not None and name in ("graph", "rescore"):
            yield from _option_rows(nested)
            continue
        called = f"`{name}`" if nested else f"`{flag_of(model, name)}`"
        if name == "align":  # has a command of its own
            continue
        cells = (called, field.description or "", _values(field), option.applies_to)
        yield option.group, "| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |"


def _values(field: FieldInfo) -> str:
    signs = {Ge: ("≥", "ge"), Gt: (">", "gt"), Le: ("≤", "le"), Lt: ("<", "lt")}
    bounds = [
        f"{signs[type(each)][0]} {getattr(each, signs[type(each)][1]):g}"
        for each in field.metadata
        if type(each) in signs
    ]
    default = (
        [] if field.default in (None, "") or field.is_required() else [f"default {_plain(field.default)}"]
    )
    choices = [" ".join(f"`{each}`" for each in _choices(field.annotation))]
    return "; ".join(part for part in (*choices, ", ".join(bounds), *default) if part)


def _choices(annotation: Any) -> tuple[str, ...]:  # noqa: ANN401 - any type
    values = getattr(annotation, "__args__", ())
    return tuple(each for each in values if isinstance(each, str))


def _plain(value: object) -> str:
    return {True: "on", False: "off"}[value] if isinstance(value, bool) else str(value)


def _commands(app: App, path: str) -> Iterator[str]:
    of_jobs = {flag for flag, _ in _flags(build_spool()["submit"]) if _is_of_jobs(flag)}
    for words, command in commands(app, path):
        flags = _flags(command)
        names = {flag for flag, _ in flags}
        has_all = len(names & of_jobs) > len(of_jobs) / 2
        lines = [line for flag, line in flags if not (has_all and flag in of_jobs)]
        arguments = " ".join(_arguments(command))
        usage = f"{words} {arguments}".strip()
        yield f"### {words}\n\n`{usage}`: {' '.join(command.help.split())}\n"
        if has_all:
            lines.append("- [options of jobs](#options-of-jobs)")
        if lines:
            yield "\n".join(lines) + "\n"


def _is_of_jobs(flag: str) -> bool:
    return flag in _option_flags(AskedOptions)


def _option_flags(model: type[BaseModel]) -> Iterator[str]:
    for name, field in model.model_fields.items():
        nested = model_in(field)
        yield from [flag_of(model, name)] if nested is None else _option_flags(nested)


def _flags(command: App) -> list[tuple[str, str]]:
    found = []
    for argument in command.assemble_argument_collection(parse_docstring=True):
        flag = argument.name
        if flag.startswith("--") and flag not in _EVERYWHERE and argument.parse and argument.show:
            found.append((flag, f"- `{flag}{_metavar(argument)}` {argument.parameter.help or ''}".rstrip()))
    return found


def _metavar(argument: Argument) -> str:
    return f" {argument.parameter.metavar}" if argument.parameter.metavar else ""


def _arguments(command: App) -> Iterator[str]:
    for argument in command.assemble_argument_collection(parse_docstring=True):
        if not argument.name.startswith(("--", "*")):
            yield argument.name if argument.required else f"[{argument.name}]"


if __name__ == "__main__":
    # The commands import it.
    MODULE.write_text(client_options(), encoding="utf-8")
    FIELDS.write_text(client_fields(), encoding="utf-8")
    PAGE.write_text(with_reference(PAGE.read_text(encoding="utf-8")), encoding="utf-8")
