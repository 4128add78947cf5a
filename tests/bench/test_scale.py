"""The benches of the API and of fleets at sizes of no use: they run through, and count what is there."""

import asyncio
import contextlib
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from functools import partial
from pathlib import Path

import pytest
from sqlalchemy import func, select

from ops.bench.queue import http_load
from ops.bench.queue.queue_cost import Watch
from ops.bench.queue.stock import batch_id, job_id, stocked
from spool.audit import audit
from spool.store import Database, get_batch, get_job
from spool.tables import cost_lines, jobs

ROOT = Path(__file__).parents[2]
ROWS = 2000


@pytest.fixture(scope="module")
def folder() -> Iterator[Path]:
    """Where the benches keep their PostgreSQL; below a folder that every user may pass."""
    folder = Path(tempfile.mkdtemp(prefix="spool-stock-"))
    folder.chmod(0o755)
    try:
        yield folder / "pg"
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def ran(*arguments: str) -> str:
    """What a bench prints; that it misses its targets here is no matter."""
    done = subprocess.run(
        [sys.executable, "-m", *arguments], cwd=ROOT, capture_output=True, text=True, timeout=170, check=False
    )
    assert done.returncode in (0, 1), done.stderr
    assert "Traceback" not in done.stderr, done.stderr
    return done.stdout


def test_the_stock_is_what_it_says_and_is_filled_once(folder: Path) -> None:
    for _ in range(2):
        with stocked(folder, ROWS) as (_, url):
            db = Database(url)
            with db.read() as tx:
                assert tx.scalar(select(func.count()).select_from(jobs)) == ROWS
                assert tx.scalar(select(func.count()).select_from(cost_lines)) == ROWS
                assert get_job(tx, job_id(ROWS)).project == f"project{ROWS % 20}"
                assert get_batch(tx, batch_id(200)).name == "batch 200"
            rules = set(audit(db, None).counts)
            db.close()
    # Its jobs have no chunks, and its workers were not busy: the ledger's lines themselves hold.
    assert "line" not in rules, rules


@pytest.mark.long
def test_the_bench_of_the_api_prints_a_row_for_each_target(folder: Path) -> None:
    output = ran(
        "ops.bench.queue.api_speed",
        *("--folder", str(folder), "--rows", str(ROWS), "--seconds", "0.3", "--connections", "2"),
        *("--processes", "1"),
    )
    rows = [line for line in output.splitlines() if line.startswith("| ")]
    for name in ("status reads", "single submissions", "costs by batch", "overview, one project", "metrics"):
        (row,) = [line for line in rows if line.startswith(f"| {name} |")]
        assert "| pass |" in row or "| MISS |" in row


@pytest.mark.long
def test_a_fleet_of_two_finishes_jobs(folder: Path) -> None:
    output = ran(
        "ops.bench.queue.fleet",
        *("--folder", str(folder), "--rows", str(ROWS), "--workers", "2", "--seconds", "1", "--audio", "3"),
        *("--processes", "1", "--top", "1", "--rtfx", "100"),
    )
    (row,) = [line for line in output.splitlines() if line.startswith(f"| {ROWS:,} | 2 x 100 |")]
    assert float(row.split("|")[3]) > 0, output


def test_idle_is_what_the_engines_did_not_do_while_jobs_waited() -> None:
    began = datetime.now(UTC)
    watch = Watch()
    assert watch.idle is None
    watch.samples["a"] = [(began, 10**9), (began + timedelta(seconds=10), 10**10)]
    watch.samples["b"] = [(began, 10**9), (began + timedelta(seconds=10), 11 * 10**9)]
    assert watch.idle == pytest.approx(0.05)


def test_the_client_counts_answers_and_keeps_what_was_no_success() -> None:
    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(asyncio.IncompleteReadError, ConnectionError):
            while head := await reader.readuntil(b"\r\n\r\n"):
                status = b"200 OK" if b"/well" in head else b"404 Not Found"
                writer.write(b"HTTP/1.1 " + status + b"\r\nContent-Length: 4\r\n\r\nbody")
        writer.close()

    async def both() -> http_load.Load:
        async with await asyncio.start_server(answer, "127.0.0.1", 0) as server:
            host, port = server.sockets[0].getsockname()
            asked = [http_load.request("GET", path, {}) for path in ("/well", "/gone")]
            streams: list[Callable[[], bytes]] = [partial(bytes, each) for each in asked]
            return await http_load.measured(f"http://{host}:{port}", streams, 0.05)

    load = asyncio.run(both())
    assert set(load.statuses) == {200, 404}
    assert not load.all_well
    assert load.example == b"body"
    assert sum(load.statuses.values()) == len(load.seconds)
    assert load.seconds == sorted(load.seconds)
