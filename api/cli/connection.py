"""What the client subcommands share: which server they talk to, how they print, and how they end.

The server is `--url`, else `SPOOL_URL`, else the stack that `spool up` runs in this home, else the address in
the settings. The key is `SPOOL_API_KEY`, else the operator's `SPOOL_API_TOKEN`, or their files.
"""

import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from enum import IntEnum
from typing import Annotated

import typer
from pydantic import BaseModel
from rich.console import Console

from api.local.instance import Running, find_running
from spool.client import Retries, Spool
from spool.settings import Settings, load_settings

Url = Annotated[
    str | None, typer.Option(help="The server; else SPOOL_URL, else the one `spool up` runs here.")
]
Json = Annotated[bool, typer.Option("--json", help="Print JSON, for machines.")]

out = Console(highlight=False)
err = Console(stderr=True, highlight=False)

# A server that is not there is told at once; one that is busy, or goes away meanwhile, is waited for.
_RETRIES = Retries(tries=10, greetings=1)


class Exit(IntEnum):
    """How a command ends."""

    DONE = 0
    FAILED = 1
    """Something that was asked for did not come to a good end: a job, a line, a recording, a law."""
    USAGE = 2
    """The command was called in a wrong way, or the settings contradict each other."""
    UNREACHABLE = 3
    REFUSED = 4
    """The server refused the whole of it."""
    INTERRUPTED = 130


@contextmanager
def connected(url: str | None, retries: Retries = _RETRIES) -> Iterator[tuple[Spool, Running | None]]:
    """A client of the server, and the local stack if that is the one."""
    settings = load_settings()
    running = find_running(settings.home)
    chosen = url or os.environ.get("SPOOL_URL") or (running.url if running else _configured(settings))
    # Never an option: every process of the machine can read a command line.
    key = settings.api_key or settings.api_token
    with Spool(chosen, key.get_secret_value() if key else None, retries=retries) as spool:
        yield spool, running if running is not None and running.url == spool.url else None


def print_json(answer: BaseModel | Sequence[BaseModel]) -> None:
    """One JSON document on stdout, never coloured or wrapped."""
    if isinstance(answer, BaseModel):
        typer.echo(answer.model_dump_json(indent=2))
    else:
        typer.echo("[" + ",\n".join(one.model_dump_json(indent=2) for one in answer) + "]")


def _configured(settings: Settings) -> str:
    host = {"0.0.0.0": "127.0.0.1", "::": "::1"}.get(settings.api_host, settings.api_host)  # noqa: S104
    return f"http://{f'[{host}]' if ':' in host else host}:{settings.api_port}"
