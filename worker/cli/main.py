"""The `spool-worker` command: which subcommands there are, and how an error becomes an exit code.

Each subcommand has its own module. Importing this one imports no MLX: a command that needs it imports it when
it runs, so the process of `run` stays free of it."""

import sys

import typer

from spool.errors import InvalidRequest, SpoolError
from worker.cli.align import align
from worker.cli.bench import bench
from worker.cli.check import check
from worker.cli.confirm import confirm
from worker.cli.diarize import diarize
from worker.cli.listen import listen
from worker.cli.lm import lm
from worker.cli.measure import measure
from worker.cli.run import run
from worker.cli.speech import speech
from worker.cli.status import status
from worker.cli.transcribe import transcribe

app = typer.Typer(no_args_is_help=True, add_completion=False, pretty_exceptions_enable=False)


@app.callback()
def _root() -> None:
    """Run a worker on this machine, or transcribe files without a queue."""


app.command("align")(align)
app.command("bench")(bench)
app.command("check")(check)
app.command("confirm")(confirm)
app.command("diarize")(diarize)
app.command("listen")(listen)
app.command("lm")(lm)
app.command("measure")(measure)
app.command("run")(run)
app.command("speech")(speech)
app.command("status")(status)
app.command("transcribe")(transcribe)


def main() -> None:
    """Run the command line. A SpoolError is printed as one sentence on stderr; exit code 2 for an invalid
    request, else 1."""
    try:
        app()
    except SpoolError as error:
        print(f"spool-worker: {error.message}", file=sys.stderr)
        raise SystemExit(2 if isinstance(error, InvalidRequest) else 1) from None


if __name__ == "__main__":
    main()
