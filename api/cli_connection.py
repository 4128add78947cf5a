"""What the client subcommands share: which server they talk to, and how they print.

The server is `--url`, else `SPOOL_URL`, else the stack that `spool up` runs in this home, else the address in
the settings. The key is `SPOOL_API_KEY`, else the operator's `SPOOL_API_TOKEN`, or their files.
"""

import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Annotated

import typer
from pydantic import BaseModel
from rich.console import Console

from api.client import Client
from api.runfile import Running, find_running
from spool.settings import Settings, load_settings

Url = Annotated[
    str | None, typer.Option(help="The server; else SPOOL_URL, else the one `spool up` runs here.")
]
Json = Annotated[bool, typer.Option("--json", help="Print JSON, for machines.")]

out = Console(highlight=False)
err = Console(stderr=True, highlight=False)


@contextmanager
def connected(url: str | None) -> Iterator[tuple[Client, Running | None]]:
    """A client of the server, and the local stack if that is the one."""
    settings = load_settings()
    running = find_running(settings.home)
    chosen = url or os.environ.get("SPOOL_URL") or (running.url if running else _configured(settings))
    # Never an option: every process of the machine can read a command line.
    key = settings.api_key or settings.api_token
    with Client(chosen, key.get_secret_value() if key else None) as client:
        yield client, running if running is not None and running.url == client.url else None


def print_json(answer: BaseModel | Sequence[BaseModel]) -> None:
    """One JSON document on stdout, never coloured or wrapped."""
    if isinstance(answer, BaseModel):
        typer.echo(answer.model_dump_json(indent=2))
    else:
        typer.echo("[" + ",\n".join(one.model_dump_json(indent=2) for one in answer) + "]")


def _configured(settings: Settings) -> str:
    host = {"0.0.0.0": "127.0.0.1", "::": "::1"}.get(settings.api_host, settings.api_host)  # noqa: S104
    return f"http://{f'[{host}]' if ':' in host else host}:{settings.api_port}"
