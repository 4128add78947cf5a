"""What the client subcommands share: the server they use, printing, and exit codes.

The server is `--url`, else `SPOOL_URL`, else the stack that `spool up` runs in this home, else the address in
the settings. The key is `SPOOL_API_KEY`, else the operator's `SPOOL_API_TOKEN`, or their files; without them
the local token of this home, for a server that runs here.
"""

import os
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from enum import IntEnum
from typing import Annotated, Any, Protocol, TypeVar
from urllib.parse import urlsplit

from cyclopts import Parameter
from pydantic import BaseModel
from rich.console import Console, RenderableType
from rich.text import Text

from api.cli.tables import Cell, table_of
from api.local.instance import Running, find_running
from api.local.token import local_token
from spool.client import Retries, Spool
from spool.commandline.app import GROUPS
from spool.errors import InvalidRequest
from spool.settings import ClientSettings, load_client_settings

Url = Annotated[
    str | None,
    Parameter(
        group=GROUPS["Routing and order"],
        help="Address of the server. Default: SPOOL_URL, else the one that `spool up` started.",
    ),
]
Json = Annotated[bool, Parameter(name="--json", show_default=False, help="Print JSON.")]
Project = Annotated[str | None, Parameter(help="Only of this project.")]
Yes = Annotated[bool, Parameter(help="Do not ask for confirmation.")]

_UNCUT = 10_000
"""Columns if the output is not a terminal: wider than any line."""


def output_console(*, stderr: bool = False) -> Console:
    """A console that wraps and cuts lines only on a terminal: output to a file or another program keeps ids
    and paths whole, unless COLUMNS sets its width."""
    console = Console(stderr=stderr, highlight=False)
    if not console.is_terminal and "COLUMNS" not in os.environ:
        console.width = _UNCUT
    return console


out = output_console()
err = output_console(stderr=True)

# A server that never answered fails at once; one that is busy or goes away is retried.
_RETRIES = Retries(tries=10, greetings=1)


class Exit(IntEnum):
    """The exit codes of commands."""

    DONE = 0
    FAILED = 1
    """A job failed, a recording or line was refused, or the audit found a violation."""
    USAGE = 2
    """Wrong usage, or contradictory settings."""
    UNREACHABLE = 3
    REFUSED = 4
    """The server refused the request."""
    INTERRUPTED = 130


@contextmanager
def connect(url: str | None, retries: Retries = _RETRIES) -> Iterator[Spool]:
    """A client of the server."""
    settings = load_client_settings()
    running = find_running(settings.home)
    chosen = url or os.environ.get("SPOOL_URL") or (running.url if running else _address_of(settings))
    parts = urlsplit(chosen)
    if parts.scheme not in ("http", "https") or not parts.hostname:
        raise InvalidRequest(f"{chosen} is not a server address; use http://HOST:PORT or https://HOST.")
    # Never an option: every process on the machine can read command lines.
    secret = settings.api_key or settings.api_token
    key = secret.get_secret_value() if secret else None
    if key is None and chosen in (running.url if running else None, _address_of(settings)):
        key = local_token(settings.home)
    with Spool(chosen, key, retries=retries) as spool:
        yield spool


def local_stack(spool: Spool) -> Running | None:
    """The stack on this machine, if it is the server."""
    running = find_running(load_client_settings().home)
    return running if running is not None and running.url == spool.url else None


Row = TypeVar("Row", bound=BaseModel)
Row_co = TypeVar("Row_co", bound=BaseModel, covariant=True)


class Rows(Protocol[Row_co]):
    """An answer with rows in it, such as a page."""

    @property
    def items(self) -> Sequence[Row_co]: ...


@Parameter(name="*")
@dataclass(frozen=True, slots=True)
class Server:
    """The server that a command asks, and whether people or programs read the answer."""

    url: Url = None
    as_json: Json = False

    def connect(self) -> AbstractContextManager[Spool]:
        """A client of the server."""
        return connect(self.url)

    def show(self, answer: BaseModel | Sequence[BaseModel], words: RenderableType, **how: Any) -> None:  # noqa: ANN401 - as rich takes it
        """Print the answer as JSON, or for people the words."""
        if self.as_json:
            print_json(answer)
        else:
            out.print(words, **how)

    def show_rows(
        self,
        answer: Sequence[Row] | Rows[Row],
        nothing: str,
        titles: Sequence[str],
        cells: Callable[[Row], Sequence[Cell]],
    ) -> None:
        """Print the answer as JSON, or its rows as a table. nothing: what to say if there are none."""
        rows = answer if isinstance(answer, Sequence) else answer.items
        if self.as_json:
            print_json(answer)  # type: ignore[arg-type]  # an answer with rows is a model too
        elif rows:
            out.print(table_of(titles, map(cells, rows)))
        else:
            out.print(nothing, style="dim")


class HasId(Protocol):
    """What an id names."""

    @property
    def id(self) -> str: ...


def print_ids(items: Iterable[HasId]) -> None:
    """Print an id a line, for scripts."""
    for item in items:
        print(item.id)


def print_json(answer: BaseModel | Sequence[BaseModel]) -> None:
    """Print one JSON document, without colour or line wrapping."""
    if isinstance(answer, BaseModel):
        print(answer.model_dump_json(indent=2))
    else:
        print("[" + ",\n".join(item.model_dump_json(indent=2) for item in answer) + "]")


def confirm(question: str) -> None:
    """Ask for a yes on the terminal. Raises SystemExit for any other answer."""
    err.print(Text(f"{question} [y/N] "), end="", soft_wrap=True)
    if sys.stdin.readline().strip().lower() not in ("y", "yes"):
        err.print("nothing was done")
        raise SystemExit(Exit.FAILED)


def _address_of(settings: ClientSettings) -> str:
    host = {"0.0.0.0": "127.0.0.1", "::": "::1"}.get(settings.api_host, settings.api_host)  # noqa: S104
    return f"http://{f'[{host}]' if ':' in host else host}:{settings.api_port}"
