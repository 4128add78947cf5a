"""The command behind `python -m migrations`. Takes the database from SPOOL_DATABASE_URL or `--url`."""

import argparse
import sys

from sqlalchemy.exc import OperationalError

import migrations
from spool.errors import SpoolError
from spool.loading import begin_loading
from spool.settings import load_settings


def main() -> int:
    """Run one command; its exit code."""
    parser = argparse.ArgumentParser(
        prog="python -m migrations", description="Move Spool's database between revisions."
    )
    parser.add_argument("--url", help="the database; SPOOL_DATABASE_URL without it")
    commands = parser.add_subparsers(dest="command", required=True)
    commands.add_parser("upgrade", help="to the newest revision").add_argument(
        "target", nargs="?", default="head"
    )
    commands.add_parser("downgrade", help="back to a revision").add_argument("target")
    commands.add_parser("current", help="where the database stands")
    commands.add_parser("revision", help="draft the next revision").add_argument("message")
    commands.add_parser("first", help="write the first revision anew, from spool.tables")
    arguments = parser.parse_args()
    if arguments.command == "first":
        from migrations import first

        first.write()
        return 0
    try:
        url = arguments.url or load_settings().database_url
        _run(arguments, url)
        print(migrations.current(url) or "empty")  # noqa: T201
    except SpoolError as error:
        print(error.message, file=sys.stderr)  # noqa: T201 - a command speaks to people
        return 2
    except OperationalError as error:
        print(str(error.orig).strip().partition("\n")[0], file=sys.stderr)  # noqa: T201
        return 1
    return 0


def _run(arguments: argparse.Namespace, url: str) -> None:
    if arguments.command == "upgrade":
        migrations.upgrade(url, arguments.target)
    elif arguments.command == "downgrade":
        migrations.downgrade(url, arguments.target)
    elif arguments.command == "revision":
        migrations.revision(url, arguments.message)


if __name__ == "__main__":
    begin_loading()
    sys.exit(main())
