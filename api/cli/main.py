"""The `spool` command: which subcommands there are, and how an error becomes a sentence and an exit code.

The exit codes are those of `cli_connection.Exit`.
Each group of subcommands lives in its own `api/cli_<name>.py` and is only registered here.
"""

import sys
from collections.abc import Sequence

import typer
from rich.console import Console
from rich.text import Text

from api.cli import audit, batches, jobs, keys, models, plan, reports, stack, webhooks
from api.cli.connection import Exit
from spool.client import ClientError, Refused, Unreachable
from spool.errors import InvalidRequest, SpoolError

app = typer.Typer(
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    help="Transcribe archives: hand in recordings, follow them, fetch their words, see what they cost.",
)

app.command("up")(stack.up)
app.command("down")(stack.down)
app.command("serve")(stack.serve)
app.command("demo")(stack.demo)
app.command("submit")(jobs.submit)
app.command("status")(jobs.status)
app.command("watch")(jobs.watch)
app.command("transcript")(jobs.transcript)
app.command("cancel")(jobs.cancel)
app.command("retry")(jobs.retry)
app.command("delete")(jobs.delete)
app.add_typer(batches.app, name="batch")
app.command("costs")(reports.costs)
app.command("workers")(reports.workers)
app.command("audit")(audit.audit)
app.command("plan")(plan.plan)
app.add_typer(keys.app, name="keys")
app.add_typer(webhooks.app, name="webhooks")
app.add_typer(models.app, name="models")


def main(arguments: Sequence[str] | None = None) -> None:
    """Run the command line; what Spool foresaw ends in one sentence on stderr."""
    try:
        app(list(arguments) if arguments is not None else None, prog_name="spool")
    except Unreachable as error:
        _fail(f"{error} `spool up` starts one on this machine.", Exit.UNREACHABLE)
    except Refused as error:
        _fail(error.detail, Exit.REFUSED)
    except ClientError as error:
        _fail(str(error), Exit.FAILED)
    except SpoolError as error:
        _fail(error.message, Exit.USAGE if isinstance(error, InvalidRequest) else Exit.FAILED)
    except KeyboardInterrupt:
        raise SystemExit(Exit.INTERRUPTED) from None


def _fail(sentence: str, code: Exit) -> None:
    Console(stderr=True).print(Text.assemble(("spool: ", "red"), sentence), soft_wrap=True)
    sys.exit(code)


if __name__ == "__main__":
    main()
