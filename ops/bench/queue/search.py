"""How long a search takes over an archive of a million passages, on both databases.

    python -m ops.bench.queue.search --passages 1000000 --searches 40

Passages of 30 words of their own and 10 that follow, of a vocabulary whose frequencies fall as in speech
(Zipf's law, s = 1.05), in jobs of 200 passages and two projects; in one of these, each passage kept 10 words
that were heard beside its own. Each passage is one to review, too. Prints p50, p95 and the longest of the
first page of 50 for each kind of search and of review, and what one job's end takes with and without its
passages.
"""

import argparse
import json
import random
import time
from collections.abc import Callable, Iterator, Sequence
from datetime import UTC, datetime
from itertools import accumulate
from typing import Any

from sqlalchemy import Connection, insert, text

from ops.bench.queue.databases import add_databases, open_databases
from ops.testbed.rows import claimed, new_job, queued
from spool.domain.archive.passages import Passage, Spoken
from spool.domain.archive.query import parse_query
from spool.domain.archive.tokens import pairs_of, sound_of
from spool.store.database import Database
from spool.store.jobs import JobFilter, columns_of_new
from spool.store.queue.endings import Outcome, finish_job
from spool.store.sql import Page
from spool.store.transcripts.passages import recording_doubts, row_of
from spool.store.transcripts.review import ReviewFilter, list_recordings, list_review, mark_checked
from spool.store.transcripts.search import TranscriptSearch, search_transcripts
from spool.tables import jobs, review_recordings

WORDS, OWN, FOLLOWING, OF_JOB = 50_000, 30, 10, 200
BLOCK, HEARD = 50, 10
TARGET_MS = 200.0
_ONSETS = ("b", "d", "f", "g", "h", "k", "l", "m", "n", "p", "r", "s", "t", "v", "w", "st", "tr", "kl", "sch")
_RESTS = ("a", "e", "i", "o", "u", "an", "en", "in", "er", "ar", "ol", "us", "ei", "ak")


class Speech:
    """Words and how often each is said."""

    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)
        words: dict[str, None] = {}
        size = 1
        while len(words) < WORDS:
            size = 1 + len(words) // 3000 if len(words) < 6000 else 3
            word = "".join(self.random.choice(_ONSETS) + self.random.choice(_RESTS) for _ in range(size))
            words.setdefault(word if len(words) > 2000 or len(word) < 5 else word[:4])
            if size < 3 and len(words) < 6000 and self.random.random() < 0.3:
                words.setdefault(word + self.random.choice(_RESTS))
        self.words = list(words)
        self.shares = list(accumulate(1 / (rank + 1) ** 1.05 for rank in range(WORDS)))

    def said(self, count: int) -> list[str]:
        """So many words."""
        return self.random.choices(self.words, cum_weights=self.shares, k=count)

    def word(self, first: int, last: int) -> str:
        """One of these ranks."""
        return self.words[self.random.randrange(first, last)]


def main() -> None:
    """Fill and search each database."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--passages", type=int, default=1_000_000)
    parser.add_argument("--searches", type=int, default=40, help="of each kind")
    given = add_databases(parser).parse_args()

    def fill_passages(db: Database) -> str:
        fill(db, Speech(given.seed), given.passages)
        return f"{given.passages:,} passages"

    for db in open_databases(given, fill_passages):
        measure(db, Speech(given.seed), given.searches)
        measure_review(db, given.searches)
        ends(db, Speech(given.seed))


def fill(db: Database, speech: Speech, count: int) -> None:
    """Write that many passages in few statements; PostgreSQL builds its indexes at the end, as after a
    restore."""
    indexes = (
        "ix_passages_terms",
        "ix_passages_pairs",
        "ix_passages_project_id",
        "ix_passages_job_id",
        "ix_passages_alternative_terms",
        "ix_passage_words_job_id",
    )
    if db.dialect == "postgresql":
        with db.begin() as tx:
            made = [
                f"{each.indexdef};"
                for each in tx.execute(text("SELECT * FROM pg_indexes"))
                if each.indexname in indexes
            ]
            tx.execute(text(f"DROP INDEX {', '.join(indexes)}"))
            tx.execute(text("ALTER TABLE passage_words DROP CONSTRAINT pk_passage_words"))
    sounds = {word: sound_of(word) for word in speech.words}
    times = row_of("", "", job_passages(speech, 1)[0])["times"]
    for block in _blocks(count // OF_JOB):
        made_jobs = [
            columns_of_new(
                new_job(
                    name=f"Reel {number}",
                    project=f"archive-{number % 2}",
                    tags={"reel": str(number)},
                    batch_id=f"bat_{number // 100}",
                    custom_id=str(number),
                )
            )
            for number in block
        ]
        _write(db, speech, made_jobs, sounds, times)
    if db.dialect == "postgresql":
        with db.engine.connect().execution_options(isolation_level="AUTOCOMMIT") as connection:
            connection.execute(text("SET maintenance_work_mem = '1GB'"))
            connection.execute(
                text(
                    "ALTER TABLE passage_words ADD CONSTRAINT pk_passage_words "
                    "PRIMARY KEY (project, sound, token, job_id)"
                )
            )
            for each in made:
                connection.execute(text(each))
            connection.execute(text("VACUUM ANALYZE"))


def _write(
    db: Database, speech: Speech, owners: list[dict[str, Any]], sounds: dict[str, str | None], times: bytes
) -> None:
    """These jobs with their passages: rows as `write_passages` writes them, only faster."""
    now = datetime.now(UTC)
    moments = dict.fromkeys(("created_at", "queued_at", "updated_at"), now)
    rows: list[tuple[Any, ...]] = []
    words: list[tuple[Any, ...]] = []
    review: list[tuple[Any, ...]] = []
    for job in owners:
        of_job, project = job["id"], job["project"]
        spoken = speech.said(OF_JOB * OWN + FOLLOWING)
        for at in reversed(range(OF_JOB)):
            own = spoken[at * OWN : (at + 1) * OWN + FOLLOWING]
            heard = speech.said(HEARD) if project == "archive-0" else []
            start, line, indexed = at * 12.0, " ".join(own), _indexed(db.dialect, own, heard)
            rows.append((of_job, project, 0, OWN, start, line, times, *indexed))
            doubts = [round(speech.random.betavariate(1, 8), 4) for _ in range(2)]
            doubt = round(1 - (1 - doubts[0]) * (1 - doubts[1]), 4)
            first, text_of = at * OWN, " ".join(own[:OWN])
            where = (of_job, at, project, 0, start, start + 12.0, first, first + OWN - 1, text_of)
            review.append((*where, doubt, *doubts, 0.0, 0.0, 0.0, 0, OWN))
        said = sorted({(sound, word) for word in spoken if (sound := sounds[word])})
        words += [(project, sound, word, of_job) for sound, word in said]
    tables = (
        (
            "passages",
            "job_id, project, channel, own_words, start_seconds, text, times, terms, pairs, alternatives, "
            "alternative_terms",
            rows,
        ),
        ("passage_words", "project, sound, token, job_id", words),
        (
            "review_passages",
            "job_id, number, project, channel, start_seconds, end_seconds, first_word, last_word, text, "
            "doubt, confidence, versions, speech, language, evidence, errors, words",
            review,
        ),
    )
    with db.begin() as tx:
        tx.execute(insert(jobs), [each | moments | {"queue_position": 0} for each in owners])
        cursor = tx.connection.cursor()
        for table, names, lines in tables:
            if db.dialect == "postgresql":
                with cursor.copy(f"COPY {table} ({names}) FROM STDIN") as copy:
                    for row in lines:
                        copy.write_row(row)
            else:
                marks = ", ".join("?" * (names.count(",") + 1))
                cursor.executemany(f"INSERT INTO {table} ({names}) VALUES ({marks})", lines)
        doubts_of = recording_doubts([each["id"] for each in owners])
        tx.execute(insert(review_recordings).from_select(doubts_of.selected_columns.keys(), doubts_of))


def _indexed(dialect: str, own: Sequence[str], heard: Sequence[str]) -> tuple[str | None, ...]:
    """What the index has of a passage: its terms, their pairs, and what was heard beside them."""
    either = sorted({*own, *(f"~{word}" for word in heard)}) if heard else []
    readings = json.dumps([[3 * n, 3 * n, word, 0.2] for n, word in enumerate(heard)]) if heard else None
    if dialect != "postgresql":
        return " ".join(own), None, readings, " ".join(either) or None
    with_heard = set(pairs_of(own))
    for n, word in enumerate(heard):
        with_heard.update(pairs_of([*own[max(3 * n - 1, 0) : 3 * n], word, own[3 * n + 1]]))
    pairs = ",".join(map(str, sorted(with_heard)))
    terms, others = (
        " ".join(f"'{word}':{place}" for place, word in enumerate(each, 1)) for each in (own, either)
    )
    return terms, f"{{{pairs}}}", readings, others or None


def job_passages(speech: Speech, count: int = OF_JOB) -> list[Passage]:
    """The passages of one recording."""
    words = speech.said(count * OWN + FOLLOWING)
    found = []
    for at in range(count):
        said = words[at * OWN : (at + 1) * OWN + FOLLOWING]
        spoken = [
            Spoken(word, at * 12.0 + n * 0.4, at * 12.0 + n * 0.4 + 0.3, 0.9) for n, word in enumerate(said)
        ]
        found.append(Passage.of(0, None, OWN, spoken))
    return found


def kinds(speech: Speech) -> dict[str, tuple[str, JobFilter, bool]]:
    """One search of each kind."""
    everywhere, own = JobFilter(), JobFilter(project="archive-1")
    middle, rare = speech.word(300, 3000), speech.word(10_000, WORDS)
    two = f"{speech.word(20, 300)} {middle}"
    common, frequent = speech.word(0, 20), speech.word(20, 300)
    sounding = next(word for word in iter(lambda: speech.word(6000, WORDS), "") if len(word) > 5)
    beside = JobFilter(project="archive-0")
    return {
        "a common word": (common, everywhere, False),
        "a word": (middle, own, False),
        "a rare word": (rare, own, False),
        "two words": (two, own, False),
        "a phrase": (f'"{speech.word(0, 20)} {speech.word(20, 300)}"', own, False),
        "a phrase of common words": (f'"{common} {speech.word(0, 20)}"', own, False),
        "a phrase that nobody says": (f'"{rare} {middle}"', own, False),
        "a prefix": (f"{middle[:3]}*", own, False),
        "near": (f"{frequent} NEAR/3 {middle}", own, False),
        "without": (f"{middle} -{common}", own, False),
        "a tag": (middle, JobFilter(project="archive-1", tag=("reel", "1")), False),
        "a batch": (middle, JobFilter(project="archive-1", batch="bat_3"), False),
        "by sound": (f"{sounding}~", own, False),
        "a word, or heard beside": (middle, beside, True),
        "a rare one": (rare, beside, True),
        "two words, or so": (two, beside, True),
        "a phrase, or so": (f'"{common} {frequent}"', beside, True),
        "by sound, or so": (f"{sounding}~", beside, True),
    }


def measure(db: Database, speech: Speech, count: int) -> None:
    """Print how long the searches of each kind take."""
    seconds: dict[str, list[float]] = {}
    hits: dict[str, int] = {}
    for _ in range(count):
        for kind, (written, matching, alternatives) in kinds(speech).items():
            wanted = TranscriptSearch(parse_query(written), matching, alternatives=alternatives)
            began = time.perf_counter()
            with db.read() as tx:
                page = search_transcripts(tx, wanted, None, 50)
            seconds.setdefault(kind, []).append(time.perf_counter() - began)
            hits[kind] = hits.get(kind, 0) + len(page.items)
    _report(seconds, hits)


def measure_review(db: Database, count: int) -> None:
    """Print how long the lists of the review take, and a check, in the same way."""
    own = JobFilter(project="archive-1")
    with db.read() as tx:
        model = list_review(tx, ReviewFilter(own)).items[0].job.options.model
    lists: dict[str, Callable[[Connection, str | None], Page[Any]]] = {
        "passages": lambda tx, after: list_review(tx, ReviewFilter(JobFilter()), after),
        "passages of a project": lambda tx, after: list_review(tx, ReviewFilter(own), after),
        "passages of a model": lambda tx, after: list_review(tx, ReviewFilter(own, model=model), after),
        "passages of a batch": lambda tx, after: list_review(
            tx, ReviewFilter(JobFilter(project="archive-1", batch="bat_3")), after
        ),
        "passages by reason": lambda tx, after: list_review(tx, ReviewFilter(own, reason="versions"), after),
        "recordings": lambda tx, after: list_recordings(tx, JobFilter(), cursor=after),
        "recordings of a project": lambda tx, after: list_recordings(tx, own, cursor=after),
        "recordings of a model": lambda tx, after: list_recordings(tx, own, model, cursor=after),
    }
    seconds: dict[str, list[float]] = {}
    items: dict[str, int] = {}
    cursors: dict[str, str | None] = {}
    for _ in range(count):
        for name, listed in lists.items():
            began = time.perf_counter()
            with db.read() as tx:
                page = listed(tx, cursors.get(name))
            seconds.setdefault(name, []).append(time.perf_counter() - began)
            items[name] = items.get(name, 0) + len(page.items)
            cursors[name] = page.next_cursor
        with db.read() as tx:
            first = list_review(tx, ReviewFilter(own), limit=1).items[0]
        began = time.perf_counter()
        with db.begin() as tx:
            mark_checked(tx, first.job.id, first.passage.number, "bench")
        seconds.setdefault("a check", []).append(time.perf_counter() - began)
        items["a check"] = items.get("a check", 0) + 1
    _report(seconds, items)


def _report(seconds: dict[str, list[float]], items: dict[str, int]) -> None:
    for kind, taken in seconds.items():
        p50, p95, longest = quantiles(taken)
        late = "" if p95 <= TARGET_MS else "  over the target"
        print(
            f"  {kind:26} p50 {p50:7.1f} p95 {p95:7.1f} longest {longest:7.1f} ms, {items[kind]} items{late}"
        )
    p50, p95, longest = quantiles([each for taken in seconds.values() for each in taken])
    print(f"  {'all':26} p50 {p50:7.1f} p95 {p95:7.1f} longest {longest:7.1f} ms")


def ends(db: Database, speech: Speech, count: int = 20) -> None:
    """Print what the end of a job of an hour (300 passages) takes with its passages and without, in turns."""
    taken: dict[bool, list[float]] = {True: [], False: []}
    for at in range(2 * count):
        found = job_passages(speech, 300)
        claim = claimed(db, queued(db).id)
        outcome = Outcome(3600.0, "key", "0" * 64, 1.0, 9000)
        began = time.perf_counter()
        with db.begin() as tx:
            finish_job(tx, claim, outcome, found if at % 2 else ())
        taken[bool(at % 2)].append(time.perf_counter() - began)
    for with_passages, name in ((True, "with its passages"), (False, "without them")):
        p50, p95, longest = quantiles(taken[with_passages])
        print(f"  an hour's end {name}: p50 {p50:.1f} p95 {p95:.1f} longest {longest:.1f} ms")


def quantiles(seconds: Sequence[float]) -> tuple[float, float, float]:
    """The median, p95 and the longest, in milliseconds."""
    ordered = sorted(1000 * each for each in seconds)
    return ordered[len(ordered) // 2], ordered[round(0.95 * (len(ordered) - 1))], ordered[-1]


def _blocks(count: int) -> Iterator[range]:
    for first in range(0, count, BLOCK):
        yield range(first, min(first + BLOCK, count))


if __name__ == "__main__":
    main()
