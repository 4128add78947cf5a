"""How surely a corrected name is found by its sound where it was written otherwise.

    .venv/bin/python -m ops.accuracy.spread SPEECH

SPEECH is a folder with `manifest.jsonl` (`models/demo/README.md`). The tapes and names are those of
`ops.accuracy.sounds`. Each name is written wrongly wherever it is said, as the other word of the manifest
that sounds most like it; all other words are right, at the times of a forced alignment. Then each name is
spread as a correction is (`spool.store.transcripts.spread`), by its sound alone: as if it were in the
dictionary, and by its letters. A place is right if its words are those in place of the name. Printed are, for
each limit on the score, how many of the misspelt places are offered and how many offered ones are right, of
speakers on which the limit may be chosen (`train`) and of others (`test`). Intervals are 95 % (Wilson).
"""

# ruff: noqa: E402 - the BLAS has to be loaded before MLX is

import argparse
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from worker.machine.blas import preload_blas

preload_blas()


from ops.accuracy.sounds import NAMES, Archive, rare_words
from ops.accuracy.witness.__main__ import DOMAINS, LIMITS, Count
from ops.accuracy.witness.tapes import Tape, make_tapes, read_manifest
from spool.domain.archive.passages import Passage, Spoken
from spool.domain.search.names import NameChange
from spool.sounds.alignment import Line, align_lines
from spool.sounds.lexicon import Lexicon, Pronunciation
from spool.sounds.phones import FRAME_SECONDS, PhoneFrames
from spool.store.transcripts.spread import LEAST_SCORE, Place, find_places
from spool.wer import edit_distance
from worker.local.witness import load_listener

LIMITS_OF_SCORE = (-0.4, -0.6, -0.8, -1.0, -1.2, -1.4, -1.6, -2.0, -2.4)
MOST_PLACES = 200


@dataclass
class Offered:
    """What was offered for names: the score of each place and whether it is right; and how many places there
    were to be found."""

    places: list[tuple[float, bool]] = field(default_factory=list)
    written: int = 0

    def recall(self, least: float) -> Count:
        return Count(sum(right and score >= least for score, right in self.places), self.written)

    def precision(self, least: float) -> Count:
        kept = [right for score, right in self.places if score >= least]
        return Count(sum(kept), len(kept))


def main() -> None:
    """Print the table of each part."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("speech", type=Path)
    given = parser.parse_args()
    listener = load_listener()
    vocabulary = sorted({word for row in read_manifest(given.speech) for word in row["text"].split()})
    with tempfile.TemporaryDirectory() as folder:
        for split in ("train", "test"):
            for number, (domain, called) in enumerate(DOMAINS.items()):
                tapes = make_tapes(given.speech, domain, split, number, LIMITS[split][domain])
                written = misspell(rare_words(tapes, listener.lexicon), vocabulary, listener.lexicon)
                typist = Typist(listener.lexicon, written)
                archive = Archive(Path(folder) / f"{domain}-{split}.db", listener, tapes, typist.write)
                for way, lexicon in (("dictionary", listener.lexicon), ("letters", typist.without_names)):
                    print(f"{split}, {called}, {way}, {archive.hours:.2f} hours, {len(written)} names")
                    report(spread(archive, written, lexicon))


def misspell(names: Sequence[str], vocabulary: Sequence[str], lexicon: Lexicon) -> dict[str, str]:
    """Each name with the word of the vocabulary that sounds most like it; at most `NAMES`."""
    said = [(word, ways[0]) for word in vocabulary if (ways := lexicon.pronounce(word))]
    written: dict[str, str] = {}
    for name in names[:NAMES]:
        own = lexicon.pronounce(name)[0]
        near = [each for each in said if abs(len(each[1]) - len(own)) <= 2 and not _same(each[0], name)]
        written[name] = min(near, key=lambda each: edit_distance(_signs(own), _signs(each[1])))[0]
    return written


def _same(word: str, name: str) -> bool:
    """Whether one is a form of the other."""
    return word.startswith(name[: max(4, len(name) - 2)]) or name.startswith(word)


def _signs(phones: Pronunciation) -> list[str]:
    return list(map(str, phones))


class Typist:
    """Writes what is said in tapes, names as given. `without_names`: the lexicon without them."""

    def __init__(self, lexicon: Lexicon, written: Mapping[str, str]) -> None:
        self._lexicon, self._written = lexicon, written
        self.without_names = _Without(lexicon, written)

    def write(self, tape: Tape, frames: PhoneFrames) -> list[Passage]:
        """A passage for each line."""
        lines = [self._line(line.start, line.end, line.text.split()) for line in tape.lines]
        passages = []
        for line, aligned in zip(tape.lines, align_lines(frames, lines), strict=True):
            spoken, end = [], line.start
            for word, place in zip(line.text.split(), aligned.words, strict=True):
                start = max(end, place.first * FRAME_SECONDS)
                end = max(start, place.last * FRAME_SECONDS)
                spoken.append(Spoken(self._written.get(word, word), round(start, 3), round(end, 3), 1.0))
            passages.append(Passage.of(0, None, len(spoken), spoken))
        return passages

    def _line(self, start: float, end: float, words: Sequence[str]) -> Line:
        ways = (self._lexicon.pronounce(word) for word in words)
        phones = tuple(own[0] if own else () for own in ways)
        return Line(round(start / FRAME_SECONDS), round(end / FRAME_SECONDS), phones)


class _Without(Lexicon):
    """A lexicon that some words are missing in."""

    def __init__(self, whole: Lexicon, missing: Mapping[str, str]) -> None:
        super().__init__({})
        self._whole, self._missing = whole, missing

    def _pronounce(self, token: str) -> tuple[Pronunciation, ...]:
        return () if token in self._missing else self._whole.pronounce(token)


def spread(archive: Archive, written: Mapping[str, str], lexicon: Lexicon) -> Offered:
    """Spread each name by its sound."""
    offered = Offered()
    for name, other in written.items():
        with archive.db.read() as tx:
            found = find_places(
                tx,
                "default",
                [NameChange(name, ())],
                lexicon,
                opened=True,
                limit=MOST_PLACES,
                least=LIMITS_OF_SCORE[-1],
            )
        if found.sounds is None:
            continue
        offered.written += sum(
            line.text.split().count(name) for tape in archive.tapes.values() for line in tape.lines
        )
        for place in found.places:
            if place.sound is not None:
                offered.places.append((place.sound.score, _is_right(place, archive, name, other)))
    return offered


def _is_right(place: Place, archive: Archive, name: str, other: str) -> bool:
    """Whether exactly the word in place of the name would be replaced."""
    words = archive.tapes[place.job.id].lines
    middle = (place.start + place.end) / 2
    said = any(line.start <= middle <= line.end and name in line.text.split() for line in words)
    return said and place.written == other


def report(offered: Offered) -> None:
    """Print a row for each limit."""
    for least in LIMITS_OF_SCORE:
        mark = " (the limit)" if least == LEAST_SCORE else ""
        print(f"  {least:.1f}{mark}: recall {offered.recall(least)}, right {offered.precision(least)}")


if __name__ == "__main__":
    main()
