"""A command line by cyclopts: its groups of flags, and how an error becomes a sentence and an exit code.

`--help` shows what people use every day; `--help-all` shows everything.
"""

import shlex
import sys
from collections.abc import Sequence
from functools import cached_property
from typing import TYPE_CHECKING, Any, get_args

from cyclopts import App, CycloptsError, Group, MissingArgumentError, Parameter, UnusedCliTokensError

from spool.domain.option_groups import Group as OptionGroup
from spool.errors import InvalidRequest

if TYPE_CHECKING:
    from cyclopts.help import HelpPanel
    from rich.console import Console, ConsoleOptions

    from spool.commandline.help import HelpFormatter

USAGE = 2
_SHOWN = ("Arguments", "Options")
_MORE = (
    *(name for name in get_args(OptionGroup) if name != "Common"),
    "Routing and order",
    "Output",
    "Details",
)
GROUPS = {name: Group(name, sort_key=number) for number, name in enumerate((*_SHOWN, *_MORE))}
"""The groups of flags, in the order of the help. Those after `Options` are shown by `--help-all` only."""


def new_app(help: str, name: str | None = None) -> App:  # noqa: A002 - as cyclopts calls it
    """A command, or a group of commands."""
    app = App(
        name=name,
        help=help,
        version_flags=[],
        help_flags=["--help"],
        help_format="plaintext",
        result_action="return_value",
        group_parameters=GROUPS["Options"],
        group_arguments=GROUPS["Arguments"],
        default_parameter=Parameter(
            negative_iterable=(),
            negative_bool=(),
            show_default=lambda value: value or None,
            allow_repeating=True,  # the last one wins
        ),
    )
    app["--help"].show = False
    return app


def run_app(app: App, arguments: Sequence[str] | None, hidden: Sequence[str] = ()) -> Any:  # noqa: ANN401
    """Run a command line. Raises InvalidRequest for one that cannot be read. hidden: groups of commands that
    are left out of the short help."""
    given = list(sys.argv[1:] if arguments is None else arguments)
    flags = given[: given.index("--")] if "--" in given else given
    brief = "--help-all" not in flags
    app.help_formatter = _Help((*_MORE, *hidden) if brief else ())
    try:
        return app(
            ["--help" if each == "--help-all" else each for each in flags] + given[len(flags) :],
            print_error=False,
            exit_on_error=False,
        )
    except CycloptsError as error:
        raise InvalidRequest(_sentence(error)) from error


class _Help:
    """The formatter of the help, imported when there is one to print."""

    def __init__(self, hidden: Sequence[str]) -> None:
        self._hidden = hidden

    @cached_property
    def _formatter(self) -> "HelpFormatter":
        from spool.commandline.help import HelpFormatter

        return HelpFormatter(self._hidden)

    def __call__(self, console: "Console", options: "ConsoleOptions", panel: "HelpPanel") -> None:
        self._formatter(console, options, panel)

    def render_usage(self, console: "Console", options: "ConsoleOptions", usage: object) -> None:
        self._formatter.render_usage(console, options, usage)

    def render_description(self, console: "Console", options: "ConsoleOptions", description: object) -> None:
        self._formatter.render_description(console, options, description)


def _sentence(error: CycloptsError) -> str:
    from pydantic import BaseModel, ValidationError

    from spool.commandline.flags import describe_faults

    cause, argument = error.__cause__, getattr(error, "argument", None)
    kind = getattr(argument, "hint", None)
    if isinstance(cause, ValidationError) and isinstance(kind, type) and issubclass(kind, BaseModel):
        return describe_faults(kind, cause)
    text = " ".join(str(error).split())
    if type(error) is UnusedCliTokensError:
        unused = error.unused_tokens or []
        text = f"Unexpected argument{'s' * (len(unused) > 1)}: {shlex.join(unused)}"
    elif type(error) is MissingArgumentError and argument is not None:
        _, hint, near = text.partition(" Did you mean ")
        text = (
            (f"{error.keyword} needs a value." if error.keyword else f"{argument.name} is required.")
            + hint
            + near
        )
    return text if text.endswith((".", "?")) else f"{text}."
