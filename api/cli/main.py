"""The `spool` command: its subcommands, and how an error becomes a sentence and an exit code.

A subcommand's module is imported when it runs, not to list it: `spool --help` must not wait for a client, a
database driver and a web framework. The exit codes are those of `api.cli.connection.Exit`.
"""

import sys
from collections.abc import Sequence
from typing import Literal, NamedTuple
from urllib.parse import urlsplit

from cyclopts import App, Group

from api.local.instance import from_any_folder
from spool.commandline.app import new_app, run_app
from spool.errors import InvalidRequest, SpoolError
from spool.loading import begin_loading


class Command(NamedTuple):
    """The module and attribute of a subcommand or group, and its line in `spool --help`."""

    module: str
    attribute: str
    group: str
    help: str


_LOCAL, _JOBS, _WORDS, _FLOW = "This machine", "Recordings", "Transcripts", "Sources and outputs"
_ADMIN, _SETUP = "Administration", "Shell"
_HIDDEN = (_FLOW, _ADMIN, _SETUP)
"""Left out of `spool --help`; `spool --help-all` has them."""
GROUPS = {
    name: Group(name, sort_key=number)
    for number, name in enumerate((_LOCAL, _JOBS, _WORDS, _FLOW, _ADMIN, _SETUP))
}

COMMANDS = {
    "up": Command("stack", "up", _LOCAL, "Run the API, a worker and, if needed, a broker on this machine."),
    "down": Command("stack", "down", _LOCAL, "Stop what `spool up` started."),
    "demo": Command("stack", "demo", _LOCAL, "Transcribe a folder of samples and report words and costs."),
    "plan": Command("plan", "plan", _LOCAL, "Say how long recordings will take, and what that costs."),
    "submit": Command("submit", "submit", _JOBS, "Submit recordings, or every recording in a folder."),
    "status": Command("jobs", "status", _JOBS, "Show one job, or the latest jobs."),
    "follow": Command("jobs", "follow_jobs", _JOBS, "Follow jobs until they end."),
    "watch": Command("archive.sources", "watch", _FLOW, "Watch a folder or bucket for new recordings."),
    "sources": Command("archive.sources", "app", _FLOW, "Manage watched folders and buckets."),
    "transcript": Command("jobs", "transcript", _WORDS, "Print a transcript."),
    "edits": Command("archive.edits", "edits", _WORDS, "Correct transcripts; list and undo corrections."),
    "review": Command(
        "archive.review",
        "review",
        _WORDS,
        "List doubtful passages; mark those that you checked; estimate errors.",
    ),
    "search": Command("archive.search", "search", _WORDS, "Search all transcripts for words."),
    "embargo": Command(
        "archive.closures", "app", _WORDS, "Close passages, speakers or recordings to readers, and open them."
    ),
    "glossary": Command(
        "archive.glossaries", "app", _WORDS, "Manage lists of names and phrases for jobs to favour."
    ),
    "lm": Command(
        "archive.language_models", "app", _WORDS, "Build language models from texts, for jobs to use."
    ),
    "export": Command("archive.outputs", "export", _FLOW, "Write a job's output files again."),
    "cancel": Command("jobs", "cancel", _JOBS, "Cancel jobs, by their ids or by filters."),
    "retry": Command(
        "jobs", "retry", _JOBS, "Queue failed or cancelled jobs again, by their ids or by filters."
    ),
    "rerun": Command(
        "archive.versions", "rerun", _JOBS, "Transcribe recordings again, for example with a better model."
    ),
    "align": Command(
        "archive.alignment", "align", _WORDS, "Align an existing transcript with its recording."
    ),
    "versions": Command(
        "archive.versions",
        "versions",
        _WORDS,
        "List the versions of a job's recording: models, words, costs.",
    ),
    "diff": Command(
        "archive.versions", "diff", _WORDS, "Compare two versions of a recording, or of a batch."
    ),
    "clip": Command(
        "archive.clips", "clip", _WORDS, "Cite a stretch of a recording, and fetch its words and sound."
    ),
    "delete": Command("jobs", "delete", _JOBS, "Delete recordings and transcripts permanently."),
    "speakers": Command("speakers", "app", _WORDS, "Find, list and name the speakers of transcripts."),
    "batch": Command("batches", "app", _JOBS, "Submit whole archives: manifests, prefixes, folders."),
    "costs": Command("reports", "costs", _JOBS, "Show the costs of a period."),
    "serve": Command("stack", "serve", _ADMIN, "Run only the HTTP API."),
    "workers": Command("reports", "workers", _ADMIN, "List the workers and their state."),
    "audit": Command(
        "audit", "audit", _ADMIN, "Check that the database and the object store are consistent."
    ),
    "models": Command("models", "app", _ADMIN, "Fetch, list and check models; set the fleet's default."),
    "graph": Command(
        "graph.build", "app", _ADMIN, "Build decoding graphs from a lexicon and an n-gram model."
    ),
    "receipt": Command("archive.receipts", "receipt", _ADMIN, "Fetch the signed receipt of a job."),
    "receipt-keys": Command("archive.receipts", "receipt_keys", _ADMIN, "Print the public keys of receipts."),
    "verify-receipt": Command(
        "archive.receipts", "verify_receipt", _ADMIN, "Check a receipt, without a server."
    ),
    "verify": Command(
        "archive.receipts",
        "verify",
        _ADMIN,
        "Decode a sample of a job again, and compare it with its receipt.",
    ),
    "keys": Command("keys", "app", _ADMIN, "Manage API keys, by project and scope."),
    "connections": Command(
        "archive.connections", "app", _FLOW, "Manage credentials of other parties' buckets."
    ),
    "webhooks": Command("webhooks", "app", _FLOW, "Send events to your own servers (Standard Webhooks)."),
}


def build_app(running: str | None = None) -> App:
    """The command line. running: the subcommand that runs, whose own docstring is then its help."""
    app = new_app("Transcribe archives: submit recordings, follow them, fetch words, see costs.", "spool")
    for number, (name, entry) in enumerate(COMMANDS.items()):
        app.command(
            f"api.cli.{entry.module}:{entry.attribute}",
            name=name,
            help=None if name == running else entry.help,
            group=GROUPS[entry.group],
            sort_key=number,
        )
    if running is not None and not running.startswith("-"):
        return app

    @app.command(name="--show-completion", group=GROUPS[_SETUP])
    def show_completion(shell: Literal["bash", "zsh", "fish"] | None = None) -> None:
        """Print the completion script for a shell."""
        print(build_app().generate_completion(shell=shell))

    app.register_install_completion_command(help="Install completion for this shell.", group=GROUPS[_SETUP])
    return app


def main(arguments: Sequence[str] | None = None) -> None:
    """Run the command line. An expected error prints one sentence to stderr."""
    # httpx goes without its own command line if that cannot be imported, and so do click and pygments.
    sys.modules.setdefault("httpx._main", None)  # type: ignore[arg-type]
    given = sys.argv[1:] if arguments is None else list(arguments)
    try:
        with from_any_folder():
            run_app(build_app(given[0] if given else None), given, hidden=_HIDDEN)
    except KeyboardInterrupt:
        raise SystemExit(130) from None
    except Exception as error:
        _fail(error)
        raise


def _fail(error: Exception) -> None:
    """Exit with a sentence for an error of Spool, its client or a file; return for any other."""
    from rich.console import Console
    from rich.text import Text

    from api.cli.connection import Exit
    from api.local.instance import spool_command
    from spool.client import ClientError, Refused, Unauthorized, Unreachable
    from spool.domain.declaration import in_flags
    from spool.domain.options import Options

    if isinstance(error, Unreachable):
        sentence, code = str(error), Exit.UNREACHABLE
        if urlsplit(error.url).hostname in ("localhost", "127.0.0.1", "::1"):
            sentence += f" Start a server on this machine with `{spool_command()} up`."
    elif isinstance(error, Unauthorized):
        sentence, code = _key_sentence(error.detail), Exit.REFUSED
    elif isinstance(error, Refused):
        sentence, code = in_flags(error.detail, Options), Exit.REFUSED
    elif isinstance(error, ClientError):
        sentence, code = str(error), Exit.FAILED
    elif isinstance(error, SpoolError):
        sentence, code = error.message, Exit.USAGE if isinstance(error, InvalidRequest) else Exit.FAILED
    elif isinstance(error, OSError) and error.filename is not None and error.strerror:
        sentence, code = f"{error.filename}: {error.strerror}.", Exit.USAGE
    else:
        return
    Console(stderr=True).print(Text.assemble(("spool: ", "red"), sentence), soft_wrap=True)
    sys.exit(code)


def _key_sentence(detail: str) -> str:
    """What to do about a key that is missing, or that the server refused. detail: the server's reason."""
    if "Authorization" in detail:  # how to send one over HTTP
        return "The server needs an API key: export SPOOL_API_KEY=…"
    return f"{detail} Set a valid one: export SPOOL_API_KEY=…"


if __name__ == "__main__":
    begin_loading()
    main()
