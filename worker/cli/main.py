"""The `spool-worker` command: which subcommands there are, and how an error becomes an exit code.

A subcommand's module is imported when it runs, and imports MLX only if it needs it, so the process of `run`
stays free of it."""

import sys
from collections.abc import Sequence

from cyclopts import App

from spool.commandline.app import new_app, run_app
from spool.errors import InvalidRequest, SpoolError
from spool.loading import begin_loading

COMMANDS = {
    "run": "Take jobs from the queue.",
    "status": "Show whether the worker of this machine takes jobs.",
    "check": "Check whether a worker can run on this machine.",
    "transcribe": "Transcribe files without a queue.",
    "align": "Print when each word of an existing transcript is spoken.",
    "listen": "Send a file through a live session and print its results as JSON lines.",
    "witness": "Check a transcript against the sounds of its recording.",
    "verify": "Decode a sample of a job's chunks again, and compare it with its receipt.",
    "diarize": "Print who speaks when.",
    "speech": "Print where there is speech.",
    "measure": "Print the lengths of recordings according to their headers.",
    "quantise": "Write a model with 8 or 4 bits a weight.",
    "lm": "Build an n-gram language model of texts, for --lm and for `spool lm put`.",
    "bench": "Measure how fast this machine transcribes.",
    "confirm": "Test on this machine what Spool's own tests cannot.",
}


def build_app(running: str | None = None) -> App:
    """The command line. running: the subcommand that runs, whose own docstring is then its help."""
    app = new_app("Run a worker on this machine, or transcribe files without a queue.", "spool-worker")
    for number, (name, line) in enumerate(COMMANDS.items()):
        app.command(
            f"worker.cli.{name}:{name}", name=name, help=None if name == running else line, sort_key=number
        )
    return app


def main(arguments: Sequence[str] | None = None) -> None:
    """Run the command line. A SpoolError is printed as one sentence on stderr; exit code 2 for an invalid
    request, else 1."""
    given = sys.argv[1:] if arguments is None else list(arguments)
    try:
        run_app(build_app(given[0] if given else None), given)
    except SpoolError as error:
        print(f"spool-worker: {error.message}", file=sys.stderr)
        raise SystemExit(2 if isinstance(error, InvalidRequest) else 1) from None


if __name__ == "__main__":
    begin_loading()
    main()
