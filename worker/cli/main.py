"""The `spool-worker` command: which subcommands there are, and how an error becomes an exit code.

Each subcommand lives in its own `worker/cli_<name>.py` and is only registered here. Importing this module
imports no MLX: a command that needs it imports it when it runs, so `run` keeps its own process free of it.
"""

import sys

import typer

from spool.errors import InvalidRequest, SpoolError
from worker.cli.bench import bench
from worker.cli.check import check
from worker.cli.confirm import confirm
from worker.cli.diarize import diarize
from worker.cli.measure import measure
from worker.cli.run import run
from worker.cli.speech import speech
from worker.cli.status import status
from worker.cli.transcribe import transcribe

app = typer.Typer(no_args_is_help=True, add_completion=False, pretty_exceptions_enable=False)


@app.callback()
def _root() -> None:
    """Transcribe on this machine: as a worker of the queue, or straight from files."""


app.command("bench")(bench)
app.command("check")(check)
app.command("confirm")(confirm)
app.command("diarize")(diarize)
app.command("measure")(measure)
app.command("run")(run)
app.command("speech")(speech)
app.command("status")(status)
app.command("transcribe")(transcribe)


def main() -> None:
    """Run the command line; an error that Spool names is one sentence on stderr (exit 2: a wrong request)."""
    try:
        app()
    except SpoolError as error:
        print(f"spool-worker: {error.message}", file=sys.stderr)
        raise SystemExit(2 if isinstance(error, InvalidRequest) else 1) from None


if __name__ == "__main__":
    main()
