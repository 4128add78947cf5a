"""The `spool` command: its subcommands, and how an error becomes a sentence and an exit code.

A subcommand's module is imported when it runs, not to list it: `spool --help` must not wait for a client, a
database driver and a web framework. The exit codes are those of `api.cli.connection.Exit`.
"""

import sys
from collections.abc import Sequence
from importlib import import_module
from typing import Any, NamedTuple
from urllib.parse import urlsplit

import typer
from typer.core import TyperCommand, TyperGroup
from typer.main import get_command, get_group

from spool.errors import InvalidRequest, SpoolError


class Subcommand(NamedTuple):
    """The module and attribute of a subcommand or group, and its line in `spool --help`."""

    module: str
    attribute: str
    panel: str
    help: str


_LOCAL, _JOBS, _ADMIN = "This machine", "Recordings", "Administration"

SUBCOMMANDS = {
    "up": Subcommand(
        "stack", "up", _LOCAL, "Run the API, a worker and, if needed, a broker on this machine."
    ),
    "down": Subcommand("stack", "down", _LOCAL, "Stop what `spool up` started."),
    "demo": Subcommand("stack", "demo", _LOCAL, "Transcribe a folder of samples and report words and costs."),
    "plan": Subcommand("plan", "plan", _LOCAL, "Estimate time and cost of an archive on a fleet."),
    "submit": Subcommand("jobs", "submit", _JOBS, "Submit recordings, or every recording in a folder."),
    "status": Subcommand("jobs", "status", _JOBS, "Show one job, or the latest jobs."),
    "follow": Subcommand("jobs", "follow_jobs", _JOBS, "Follow jobs until they end."),
    "watch": Subcommand("archive.sources", "watch", _JOBS, "Watch a folder or bucket for new recordings."),
    "sources": Subcommand("archive.sources", "app", _JOBS, "Manage watched folders and buckets."),
    "transcript": Subcommand("jobs", "transcript", _JOBS, "Print a transcript."),
    "edits": Subcommand("archive.edits", "edits", _JOBS, "Correct transcripts; list and undo corrections."),
    "review": Subcommand(
        "archive.review",
        "review",
        _JOBS,
        "List doubtful passages; mark those that you checked; estimate errors.",
    ),
    "search": Subcommand("archive.search", "search", _JOBS, "Search all transcripts for words."),
    "glossary": Subcommand(
        "archive.glossaries", "app", _JOBS, "Manage lists of names and phrases for jobs to favour."
    ),
    "lm": Subcommand(
        "archive.language_models", "app", _JOBS, "Build language models from texts, for jobs to use."
    ),
    "export": Subcommand("archive.outputs", "export", _JOBS, "Write a job's output files again."),
    "cancel": Subcommand("jobs", "cancel", _JOBS, "Cancel a job."),
    "retry": Subcommand("jobs", "retry", _JOBS, "Queue a failed or cancelled job again."),
    "rerun": Subcommand(
        "archive.versions", "rerun", _JOBS, "Transcribe recordings again, for example with a better model."
    ),
    "align": Subcommand(
        "archive.alignment", "align", _JOBS, "Align an existing transcript with its recording."
    ),
    "versions": Subcommand(
        "archive.versions", "versions", _JOBS, "List the versions of a job's recording: models, words, costs."
    ),
    "diff": Subcommand(
        "archive.versions", "diff", _JOBS, "Compare two versions of a recording, or of a batch."
    ),
    "delete": Subcommand("jobs", "delete", _JOBS, "Delete recordings and transcripts permanently."),
    "speakers": Subcommand("jobs", "speakers", _JOBS, "Find, list and name the speakers of transcripts."),
    "batch": Subcommand("batches", "app", _JOBS, "Submit whole archives: manifests, prefixes, folders."),
    "costs": Subcommand("reports", "costs", _JOBS, "Show the costs of a period."),
    "serve": Subcommand("stack", "serve", _ADMIN, "Run only the HTTP API."),
    "workers": Subcommand("reports", "workers", _ADMIN, "List the workers and their state."),
    "audit": Subcommand(
        "audit", "audit", _ADMIN, "Check that the database and the object store are consistent."
    ),
    "models": Subcommand("models", "app", _ADMIN, "Fetch, list and check models; set the fleet's default."),
    "graph": Subcommand(
        "graph.build", "app", _ADMIN, "Build decoding graphs from a lexicon and an n-gram model."
    ),
    "keys": Subcommand("keys", "app", _ADMIN, "Manage API keys, by project and scope."),
    "connections": Subcommand(
        "archive.connections", "app", _ADMIN, "Manage credentials of other parties' buckets."
    ),
    "webhooks": Subcommand("webhooks", "app", _ADMIN, "Send events to your own servers (Standard Webhooks)."),
}


class _LazyGroup(TyperGroup):
    """Lists subcommands from the table above; imports the one that runs or is completed."""

    def __init__(self, **attributes: Any) -> None:  # noqa: ANN401 - whatever Typer passes on
        super().__init__(**attributes)
        for name, command in SUBCOMMANDS.items():
            self.add_command(TyperCommand(name, help=command.help, rich_help_panel=command.panel))

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:  # noqa: ANN401 - Typer's own copy of click
        """The subcommand that `args` names, imported, and the arguments left for it."""
        name, listed, rest = super().resolve_command(ctx, args)
        return name, load_subcommand(name) if name and listed else None, rest


def load_subcommand(name: str) -> Any:  # noqa: ANN401 - Typer's own copy of click
    """The click command of one subcommand, with its module imported."""
    entry = SUBCOMMANDS[name]
    command = getattr(import_module(f"api.cli.{entry.module}"), entry.attribute)
    if isinstance(command, typer.Typer):
        return get_group(command)
    single = typer.Typer(add_completion=False)
    single.command(name)(command)
    return get_command(single)


app = typer.Typer(cls=_LazyGroup, no_args_is_help=True, pretty_exceptions_enable=False)


@app.callback()
def _root() -> None:
    """Transcribe archives: submit recordings, follow them, fetch their words, see what they cost."""


def main(arguments: Sequence[str] | None = None) -> None:
    """Run the command line. An expected error prints one sentence to stderr."""
    try:
        app(list(arguments) if arguments is not None else None, prog_name="spool")
    except KeyboardInterrupt:
        raise SystemExit(130) from None
    except Exception as error:
        _fail(error)
        raise


def _fail(error: Exception) -> None:
    """Exit with a sentence for an error of Spool or its client; return for any other."""
    from rich.console import Console
    from rich.text import Text

    from api.cli.connection import Exit
    from api.local.instance import spool_command
    from spool.client import ClientError, Refused, Unreachable

    if isinstance(error, Unreachable):
        sentence, code = str(error), Exit.UNREACHABLE
        if urlsplit(error.url).hostname in ("localhost", "127.0.0.1", "::1"):
            sentence += f" Start a server on this machine with `{spool_command()} up`."
    elif isinstance(error, Refused):
        sentence, code = error.detail, Exit.REFUSED
    elif isinstance(error, ClientError):
        sentence, code = str(error), Exit.FAILED
    elif isinstance(error, SpoolError):
        sentence, code = error.message, Exit.USAGE if isinstance(error, InvalidRequest) else Exit.FAILED
    else:
        return
    Console(stderr=True).print(Text.assemble(("spool: ", "red"), sentence), soft_wrap=True)
    sys.exit(code)


if __name__ == "__main__":
    main()
