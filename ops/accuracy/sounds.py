"""How well names that no text has are found by their sound.

    .venv/bin/python -m ops.accuracy.sounds SPEECH [--fit]

SPEECH is a folder with `manifest.jsonl` (`models/demo/README.md`). The tapes of the witness
(`ops.accuracy.witness.tapes`) are heard once, kept as jobs keep them, in a database whose transcripts have
no words, and searched as `GET /v1/search?sound=` does. Searched is each word of five sounds and more that is
said once or twice in the part, `NAMES` at most of each domain: by the dictionary, and by its letters as if
it were in none. A hit is right within the line that has the word; forms of the same word count as wrong.
Intervals are 95 % (Wilson). The weights of `certainty` come from the part `train`, which `--fit` fits again;
the table is of the part `test`, whose speakers are others.
"""

# ruff: noqa: E402 - the BLAS has to be loaded before MLX is

import argparse
import tempfile
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from worker.machine.blas import preload_blas

preload_blas()

import numpy as np

import migrations
from api.presenters.search import SURE
from ops.accuracy.witness.__main__ import DOMAINS, LIMITS, Count
from ops.accuracy.witness.tapes import Tape, make_tapes
from ops.testbed.rows import claimed, queued
from spool.domain.archive.passages import Passage
from spool.sounds.lexicon import Lexicon
from spool.sounds.phones import PhoneFrames
from spool.sounds.queries import SoundQuery, query_of_words
from spool.store.database import Database
from spool.store.jobs import JobFilter
from spool.store.queue.endings import Outcome, finish_job
from spool.store.transcripts.sound_search import search_sounds
from spool.store.transcripts.sounds import ChannelSounds, write_sounds
from worker.local.witness import Listener, load_listener

NAMES = 80
LEAST_PHONES = 5
AT_RATES = (0.5, 1.0, 5.0)
"""False alarms an hour and name."""
EDGE_SECONDS = 0.2


@dataclass(frozen=True)
class Hit:
    """One place that was found. right: the word is said there."""

    rank: int
    score: float
    phones: int
    right: bool


@dataclass
class Findings:
    """Of one domain and way to say the names."""

    first: Count = field(default_factory=Count)
    ten: Count = field(default_factory=Count)
    hits: list[Hit] = field(default_factory=list)
    places: int = 0
    names: int = 0


def main() -> None:
    """Print the table, or the weights."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("speech", type=Path)
    parser.add_argument("--fit", action="store_true", help="fit the weights of `certainty` on the part train")
    given = parser.parse_args()
    listener = load_listener()
    split = "train" if given.fit else "test"
    fitted: list[Hit] = []
    with tempfile.TemporaryDirectory() as folder:
        for number, (domain, called) in enumerate(DOMAINS.items()):
            tapes = make_tapes(given.speech, domain, split, number, LIMITS[split][domain])
            archive = Archive(Path(folder) / f"{domain}.db", listener, tapes)
            for way, lexicon in (("dictionary", listener.lexicon), ("letters", None)):
                found = archive.search(listener.lexicon, lexicon)
                fitted += found.hits
                print(f"{called}, {way}, {archive.hours:.2f} hours, {archive.kilobytes:.0f} kB an hour")
                report(found, archive.hours)
    if given.fit:
        print("weights", fit(fitted))
    else:
        print_certainty(fitted)


class Archive:
    """Tapes in a database of their own, as the witness of a job keeps them."""

    def __init__(
        self,
        path: Path,
        listener: Listener,
        tapes: Sequence[Tape],
        write: Callable[[Tape, PhoneFrames], Sequence[Passage]] = lambda _tape, _frames: (),
    ) -> None:
        """write: the transcript of a tape."""
        url = f"sqlite:///{path}"
        migrations.upgrade(url)
        self.db = Database(url)
        self.tapes: dict[str, Tape] = {}
        size = 0
        for tape in tapes:
            job = queued(self.db)
            heard = listener.hear([tape.samples[:, None]])[0]
            kept = ChannelSounds.of(heard)
            size += sum(map(len, kept.blocks))
            claim = claimed(self.db, job.id)
            with self.db.begin() as tx:
                outcome = Outcome(len(tape.samples) / 16000, f"jobs/{job.id}/t", "0" * 64, 1.0, 0)
                finish_job(tx, claim, outcome, write(tape, heard))
                write_sounds(tx, job.id, job.project, [kept])
            self.tapes[job.id] = tape
        self.hours = sum(len(tape.samples) for tape in tapes) / 16000 / 3600
        self.kilobytes = size / self.hours / 1000

    def search(self, known: Lexicon, lexicon: Lexicon | None) -> Findings:
        """Search all names, said as the lexicon has them or by their letters."""
        found = Findings()
        for name in rare_words(list(self.tapes.values()), known)[:NAMES]:
            query = query_of_words(name, lexicon)
            if len(query.ways[0]) >= LEAST_PHONES:
                self._search(name, query, found)
        return found

    def _search(self, name: str, query: SoundQuery, found: Findings) -> None:
        said = [
            (job_id, line.start, line.end)
            for job_id, tape in self.tapes.items()
            for line in tape.lines
            if name in line.text.split()
        ]
        with self.db.read() as tx:
            answer = search_sounds(tx, query, JobFilter())
        met: dict[tuple[str, float, float], int] = {}
        for rank, hit in enumerate(answer.hits):
            middle = (hit.start + hit.end) / 2
            own = [
                each
                for each in said
                if each[0] == hit.job.id and each[1] - EDGE_SECONDS <= middle <= each[2] + EDGE_SECONDS
            ]
            right = bool(own) and own[0] not in met
            if right:
                met[own[0]] = rank
            found.hits.append(Hit(rank, hit.score, len(query.ways[0]), right))
        found.first.add(bool(answer.hits) and 0 in met.values())
        for each in said:
            found.ten.add(met.get(each, 10) < 10)
        found.places += len(said)
        found.names += 1


def rare_words(tapes: Sequence[Tape], lexicon: Lexicon) -> list[str]:
    """The words of five sounds and more that are said once or twice, in an order drawn with a fixed seed."""
    counts = Counter(word for tape in tapes for line in tape.lines for word in line.text.split())
    rare = [
        word
        for word, count in sorted(counts.items())
        if count <= 2 and (ways := lexicon.pronounce(word)) and len(ways[0]) >= LEAST_PHONES
    ]
    rng = np.random.default_rng(40)
    return [rare[at] for at in rng.permutation(len(rare)).tolist()]


def report(found: Findings, hours: float) -> None:
    """Print one row of each measure."""
    print(f"  recall@10: {found.ten}")
    print(f"  first hit right: {found.first}")
    wrong = sorted((hit.score for hit in found.hits if not hit.right), reverse=True)
    for rate in AT_RATES:
        allowed = round(rate * hours * found.names)
        limit = wrong[allowed] if allowed < len(wrong) else -np.inf
        row = Count(sum(hit.right and hit.score > limit for hit in found.hits), found.places)
        print(f"  recall at {rate:g} false alarms an hour and name: {row}, score above {limit:.2f}")


def fit(hits: Sequence[Hit]) -> list[float]:
    """Constant, and what score and phones count, by logistic regression."""
    features = np.array([[1.0, hit.score, hit.phones] for hit in hits])
    right = np.array([hit.right for hit in hits], float)
    weights = np.zeros(3)
    for _ in range(50):
        share = 1 / (1 + np.exp(-features @ weights))
        curve = features.T @ (features * (share * (1 - share))[:, None]) + 1e-3 * np.eye(3)
        weights += np.linalg.solve(curve, features.T @ (right - share) - 1e-3 * weights)
    return [round(float(each), 3) for each in weights]


def print_certainty(hits: Sequence[Hit]) -> None:
    """Print how often hits of each certainty are right."""
    print("certainty, and how many of these hits are right")
    for low, high in ((0.0, 0.1), (0.1, 0.3), (0.3, 0.5), (0.5, 0.7), (0.7, 0.9), (0.9, 1.01)):
        some = [hit.right for hit in hits if low <= _certainty(hit) < high]
        print(f"  {low:.1f} to {min(high, 1.0):.1f}: {Count(sum(some), len(some))}")


def _certainty(hit: Hit) -> float:
    constant, score, each = SURE
    return float(1 / (1 + np.exp(-(constant + score * hit.score + each * hit.phones))))


if __name__ == "__main__":
    main()
