"""How long a search by sound takes over ten thousand synthetic hours, on both databases.

    python -m ops.bench.queue.sounds --hours 10000 --searches 40

Recordings of an hour: words of a made-up vocabulary (`ops.bench.queue.search`), about 9 phones a second with
pauses, of which a sixth is heard as another phone and half have a second likely one. Blocks are drawn from
`--pool` hours, since making each anew would take a day. Searched are words of more than six letters, every
second one spelled backwards, so that nobody says it. Prints how dense the index is and what a block takes,
p50, p95 and the longest of the first 50 hits by the wall and by the processors of this process, the parts of
it by the wall, and the load.

To compare two trees, give both the same `--folder` and `--hits`, and run them in turns. The first run writes
its hits there, and the others say whether theirs are the same, to the last digit.
"""

import argparse
import gc
import json
import os
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import ParamSpec, TypeVar
from unittest.mock import patch

import numpy as np
from numpy.typing import NDArray
from sqlalchemy import insert, text

from api.server.run import SWITCH_SECONDS
from ops.bench.queue.databases import add_databases, open_databases
from ops.bench.queue.search import Speech
from ops.testbed.rows import new_job
from spool.domain.jobs import JobState
from spool.sounds.blocks import FRAMES, pack_blocks
from spool.sounds.letters import spell_sounds
from spool.sounds.pairs import CELL, Bits, make_pairs
from spool.sounds.phones import COLUMNS, END, PHONES, SILENCE, PhoneFrames
from spool.sounds.queries import query_of_words
from spool.store.database import Database
from spool.store.jobs import JobFilter, columns_of_new
from spool.store.transcripts import sound_search
from spool.store.transcripts.sound_search import search_sounds
from spool.store.transcripts.sounds import PACK_BYTES, write_segment
from spool.tables import jobs, sound_recordings

P = ParamSpec("P")
R = TypeVar("R")
HOUR = 180
"""Blocks of 20 s."""
CELLS = FRAMES // CELL
PARTS: dict[str, tuple[object, str]] = {
    "segments": (sound_search, "_Index"),
    "rows": (sound_search._Index, "read"),
    "cells": (sound_search._Index, "find"),
    "windows": (sound_search, "_load_candidates"),
    "hits": (sound_search, "_open_hits"),
}
"""What of a search each is."""


def main() -> None:
    """Fill and search each database."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--hours", type=int, default=10_000)
    parser.add_argument("--pool", type=int, default=100)
    parser.add_argument("--searches", type=int, default=40)
    parser.add_argument("--hits", type=Path, help="a file of all hits, to compare with")
    given = add_databases(parser).parse_args()

    def fill_hours(db: Database) -> str:
        fill(db, Speech(given.seed), given.hours, given.pool)
        return f"{given.hours:,} hours"

    for db in open_databases(given, fill_hours):
        measure(db, Speech(given.seed), given.searches, given.hits)


def speak(speech: Speech, rng: np.random.Generator) -> NDArray[np.uint8]:
    """A block of words as the witness hears them."""
    table = np.full((FRAMES, COLUMNS), 255, np.uint8)
    table[:, SILENCE] = table[:, END] = 0
    at = int(rng.integers(0, 20))
    while at < FRAMES - 2:
        for phone in spell_sounds(speech.said(1)[0])[0]:
            if at >= FRAMES - 2:
                break
            wrong = rng.random() < 1 / 6
            table[at : at + 1 + int(rng.random() < 0.3), SILENCE] = 30
            second, third = rng.integers(len(PHONES), size=2)
            table[at, second], table[at, third] = rng.integers(15, 65), rng.integers(60, 200)
            table[at, int(rng.integers(len(PHONES))) if wrong else phone] = 0
            at += int(rng.integers(3, 7))
        at += int(rng.integers(1, 5)) if rng.random() < 0.9 else 40
    return table


def fill(db: Database, speech: Speech, hours: int, pool: int) -> None:
    """Write that many recordings, packed as the sweeper packs them."""
    rng = np.random.default_rng(1)
    tables = [speak(speech, rng) for _ in range(pool * HOUR)]
    blocks = [pack_blocks(PhoneFrames(table))[0] for table in tables]
    matrices = [make_pairs(table)[:, :] for table in tables]
    cells = np.stack([np.unpackbits(each, axis=1)[:, :CELLS] for each in matrices]).astype(np.bool_)
    kept = HOUR * sum(map(len, blocks)) / len(blocks)
    print(f"{cells.mean():.1%} of the pairs in a cell; blocks of {kept / 1000:.0f} kB an hour")
    together = PACK_BYTES // (HOUR * CELLS // 8)
    for first in range(0, hours, together):
        numbers = range(first, min(first + together, hours))
        _write(db, list(numbers), rng, blocks, cells)
    if db.dialect == "postgresql":
        with db.engine.connect().execution_options(isolation_level="AUTOCOMMIT") as connection:
            connection.execute(text("VACUUM ANALYZE"))


def _write(
    db: Database, numbers: list[int], rng: np.random.Generator, blocks: list[bytes], cells: NDArray[np.bool_]
) -> None:
    now = datetime.now(UTC)
    fields = {"queue_position": 0, "state": JobState.DONE.value, "finished_at": now, "transcript_key": "t"}
    fields |= dict.fromkeys(("created_at", "queued_at", "updated_at"), now)
    owners = [columns_of_new(new_job(name=f"Reel {at}", project="archive")) | fields for at in numbers]
    with db.begin() as tx:
        tx.execute(insert(jobs), owners)
        matrices: list[Bits] = []
        rows = []
        for place, owner in enumerate(owners):
            drawn = rng.integers(len(blocks), size=HOUR)
            whole = cells[drawn].transpose(1, 0, 2).reshape(cells.shape[1], -1)
            matrices.append(np.packbits(whole, axis=1))
            rows += [(owner["id"], 0, number, blocks[at]) for number, at in enumerate(drawn.tolist())]
            width = matrices[0].shape[1]
            owner |= {"channel": 0, "width": width, "first_byte": place * width, "job_id": owner["id"]}
        segment = write_segment(tx, "archive", np.concatenate(matrices, axis=1))
        names = ("job_id", "channel", "project", "width", "first_byte")
        tx.execute(
            insert(sound_recordings),
            [{name: each[name] for name in names} | {"segment": segment} for each in owners],
        )
        cursor = tx.connection.cursor()
        if db.dialect == "postgresql":
            with cursor.copy("COPY sound_blocks (job_id, channel, number, block) FROM STDIN") as copy:
                for row in rows:
                    copy.write_row(row)
        else:
            cursor.executemany("INSERT INTO sound_blocks VALUES (?, ?, ?, ?)", rows)


def names(speech: Speech, count: int) -> Iterator[str]:
    """Words of the vocabulary, and ones that are not in it."""
    for number in range(count):
        word = next(each for each in iter(lambda: speech.word(6000, 50_000), "") if len(each) > 6)
        yield word if number % 2 else word[::-1]


class Stopwatch:
    """Milliseconds of searches, [wall, processors of this process] of each, and of their parts."""

    def __init__(self) -> None:
        self.searches: dict[str, list[tuple[float, float]]] = {}
        self.parts: dict[str, list[float]] = {}

    @contextmanager
    def search(self, kind: str) -> Iterator[None]:
        """Time a search."""
        began, worked = time.perf_counter(), time.process_time()
        yield
        taken = 1000 * (time.perf_counter() - began), 1000 * (time.process_time() - worked)
        self.searches.setdefault(kind, []).append(taken)

    @contextmanager
    def watching(self) -> Iterator[None]:
        """Time the parts of the searches."""
        with ExitStack() as stack:
            for name, (owner, function) in PARTS.items():
                if hasattr(owner, function):  # an older tree may not have it
                    stack.enter_context(
                        patch.object(owner, function, self._timed(name, getattr(owner, function)))
                    )
            yield

    def _timed(self, name: str, inner: Callable[P, R]) -> Callable[P, R]:
        def timed(*values: P.args, **named: P.kwargs) -> R:
            began = time.perf_counter()
            try:
                return inner(*values, **named)
            finally:
                self.parts.setdefault(name, []).append(1000 * (time.perf_counter() - began))

        return timed

    def report(self, dialect: str) -> None:
        """Print all."""
        for kind, taken in self.searches.items():
            for of, own in zip(("wall", "processors"), zip(*taken, strict=True), strict=True):
                p50, p95, most = np.quantile(own, (0.5, 0.95, 1.0))
                print(f"{dialect}, {kind}, {of}: p50 {p50:.0f} ms, p95 {p95:.0f} ms, longest {most:.0f} ms")
        parts = (f"{name} {np.quantile(own, 0.5):.0f}" for name, own in self.parts.items())
        print(f"parts, wall, p50: {', '.join(parts)} ms; load {os.getloadavg()[0]:.1f}")


def measure(db: Database, speech: Speech, count: int, known: Path | None) -> None:
    """Print how long the searches take."""
    with db.read() as tx:
        search_sounds(tx, query_of_words("okonkwo", None), JobFilter())
    gc.collect()
    gc.freeze()  # this and the interval as in the API
    sys.setswitchinterval(SWITCH_SECONDS)
    watch = Stopwatch()
    every: dict[str, list[list[object]]] = {}
    for name in names(speech, count):
        query = query_of_words(name, None)
        for kind, jobs_of in (("everywhere", JobFilter()), ("in a project", JobFilter(project="archive"))):
            with watch.watching(), watch.search(kind), db.read() as tx:
                found = search_sounds(tx, query, jobs_of)
        every[name] = sorted([hit.job.name, hit.channel, hit.start, hit.end, hit.score] for hit in found.hits)
    watch.report(db.dialect)
    print(f"{sum(map(len, every.values())) / count:.1f} hits a search, {found.hours:,.0f} hours")
    if known is not None:
        compare(known, every)


def compare(known: Path, every: dict[str, list[list[object]]]) -> None:
    """Print whether the hits of each name are those of the file, which is written if there is none."""
    if not known.exists():
        known.write_text(json.dumps(every), encoding="utf-8")
    before = json.loads(known.read_text(encoding="utf-8"))
    other = [name for name, hits in every.items() if before.get(name) != hits]
    told = f"other hits: {', '.join(other)}" if other else "the same hits"
    print(f"{len(every)} names, {told}")


if __name__ == "__main__":
    main()
