"""The databases of a bench: filled once and kept, if a folder is given."""

import argparse
import contextlib
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import migrations
from ops.testbed.postgres import PostgresServer
from spool.store.database import Database


def add_databases(parser: argparse.ArgumentParser) -> argparse.ArgumentParser:
    """Add the options that `open_databases` reads, and `--seed`."""
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument(
        "--folder", type=Path, help="keep the databases here, and search those that are there"
    )
    parser.add_argument("--databases", nargs="+", default=["sqlite", "postgresql"])
    return parser


def open_databases(given: argparse.Namespace, fill: Callable[[Database], str]) -> Iterator[Database]:
    """Each database, filled by `fill`, which returns what it wrote, unless the folder has it already."""
    with contextlib.ExitStack() as stack:
        folder = given.folder or Path(stack.enter_context(tempfile.TemporaryDirectory()))
        folder.mkdir(parents=True, exist_ok=True)
        folder.chmod(0o755)  # PostgreSQL runs as another user where this one is root
        server = stack.enter_context(contextlib.closing(PostgresServer(folder=folder / "postgresql")))
        for name in given.databases:
            if name == "sqlite":
                known = (folder / "bench.db").exists()
                url = f"sqlite:///{folder / 'bench.db'}"
            else:
                known = (folder / "postgresql" / "data").exists()
                server.start()
                url = server.url("bench") if known else server.create_database("bench")
            with contextlib.closing(Database(url, statement_seconds=600)) as db:
                if not known:
                    migrations.upgrade(url)
                    began = time.perf_counter()
                    print(f"{name}: {fill(db)} in {time.perf_counter() - began:.0f} s")
                yield db
