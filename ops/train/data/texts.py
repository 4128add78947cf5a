"""Sentences for synthetic speech: the training transcripts, and English that Debian's packages carry.

`wordnet-base` (example phrases; WordNet's own free licence), `fortunes` (BSD) and `wamerican` (names; public
domain) are read where they are installed and left out where they are not. Nothing that holds a sentence of
the test sets is given. Also gives text in other languages: Debian's translated messages.
"""

from __future__ import annotations

import gettext
import re
from collections import Counter
from collections.abc import Iterable, Iterator
from pathlib import Path

import numpy as np

Rng = np.random.Generator
DIGITS = ["zero", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine"]
WORDS = ["bed", "cat", "happy"]
WORDNET = Path("/usr/share/wordnet")
FORTUNES = Path("/usr/share/games/fortunes")
NAMES = Path("/usr/share/dict/american-english")
MESSAGES = Path("/usr/share/locale")
# Pictures, programs and chat logs.
NOT_PROSE = {"art", "ascii-art", "knghtbrd", "perl", "debian", "linuxcookie", "disclaimer", "translate-me"}


def plain(text: str) -> str:
    """Lower case, a to z, apostrophe and single spaces; empty where more than punctuation would be lost."""
    text = text.lower().replace("\u2019", "'").replace("-", " ")
    text = re.sub(r"[.,;:!?()\"`]|--|(?<![a-z])'|'(?![a-z])", " ", text)
    text = " ".join(text.split())
    return text if re.fullmatch(r"[a-z' ]*", text) else ""


def wordnet(folder: Path = WORDNET) -> Iterator[str]:
    """The quoted examples of WordNet's glosses, of three words and more."""
    for path in sorted(folder.glob("data.*")):
        for phrase in re.findall(r'"([^"]+)"', path.read_text(errors="ignore")):
            text = plain(phrase)
            if text.count(" ") >= 2:
                yield text


def fortunes(folder: Path = FORTUNES) -> Iterator[str]:
    """Sentences of the English fortunes."""
    for path in sorted(p for p in folder.glob("*") if p.is_file() and not p.suffix):
        if path.name not in NOT_PROSE:
            for said in path.read_text(errors="ignore").split("\n%\n"):
                for sentence in re.split(r"(?<=[.!?])\s", re.sub(r"\n\s*--.*", "", said, flags=re.DOTALL)):
                    text = plain(sentence)
                    if 3 <= len(text.split()) <= 30:
                        yield text


def english(texts: Iterable[str], known: set[str]) -> Iterator[str]:
    """The texts most of whose words are known: fortunes of other languages lie in the same folder."""
    for text in texts:
        words = text.split()
        if sum(word in known for word in words) >= 0.8 * len(words):
            yield text


def names(path: Path = NAMES) -> list[str]:
    """People and places: the capitalised words of the list, lower case."""
    if not path.exists():
        return []
    stripped = (line.strip() for line in path.read_text().splitlines())
    return [w.lower() for w in stripped if re.fullmatch(r"[A-Z][a-z]{2,9}", w)]


def outside(texts: Iterable[str], held: set[str]) -> list[str]:
    """The texts, each once, that hold none of the held sentences of three words or more."""
    pattern = [f" {text} " for text in held if text.count(" ") >= 2]
    return [text for text in dict.fromkeys(texts) if not any(p in f" {text} " for p in pattern)]


class Sentences:
    """Draws what synthetic speech says."""

    def __init__(self, transcripts: list[str], held: set[str]) -> None:
        # Speakers share templates ("x lives in y"): only whole held sentences are kept out.
        self.transcripts = [text for text in dict.fromkeys(transcripts) if text not in held]
        phrases = list(wordnet())
        known = {word for text in [*self.transcripts, *phrases] for word in text.split()}
        self.prose = outside([*phrases, *english(fortunes(), known)], held)
        counted = Counter(word for text in [*self.transcripts, *self.prose] for word in text.split())
        self.common = [word for word, count in counted.most_common(12_000) if count > 1]
        weight = np.array([counted[word] for word in self.common], np.float64) ** 0.4
        self.weight = np.cumsum(weight / weight.sum())
        self.names = names()
        self.held = held

    def word(self, rng: Rng) -> str:
        """A common word, the rarer ones less often; one of five is a name."""
        if self.names and rng.random() < 0.2:
            return self.names[int(rng.integers(len(self.names)))]
        return self.common[min(len(self.common) - 1, int(np.searchsorted(self.weight, rng.random())))]

    def draw(self, rng: Rng) -> str:
        """One text, never a held one."""
        while True:
            text = self._draw(rng)
            if text not in self.held or set(text.split()) <= {*DIGITS, *WORDS}:
                return text

    def _draw(self, rng: Rng) -> str:
        kind = rng.random()
        if kind < 0.30:
            return _span(self.transcripts[int(rng.integers(len(self.transcripts)))], rng)
        if kind < 0.47:
            words = self.transcripts[int(rng.integers(len(self.transcripts)))].split()[:12]
            for _ in range(int(rng.integers(1, 3))):
                words[int(rng.integers(len(words)))] = self.word(rng)
            return " ".join(words)
        if kind < 0.79 and self.prose:
            return _span(self.prose[int(rng.integers(len(self.prose)))], rng)
        if kind < 0.89:
            return " ".join(self.word(rng) for _ in range(int(rng.integers(1, 8))))
        if kind < 0.97:
            return " ".join(rng.choice(DIGITS, int(rng.integers(1, 9))))
        return " ".join(rng.choice(WORDS, int(rng.integers(1, 4))))


def _span(text: str, rng: Rng) -> str:
    words = text.split()
    size = int(rng.integers(3, 16))
    start = int(rng.integers(0, max(1, len(words) - size + 1)))
    return " ".join(words[start : start + size])


def messages(language: str, folder: Path = MESSAGES) -> list[str]:
    """Programs' messages in that language, three to thirty words each, without placeholders."""
    seen: set[str] = set()
    for path in sorted((folder / language / "LC_MESSAGES").glob("*.mo")):
        try:
            with path.open("rb") as file:
                catalogue = gettext.GNUTranslations(file)
        except (OSError, UnicodeDecodeError, ValueError):
            continue
        for entry in vars(catalogue).get("_catalog", {}).values():
            for sentence in re.split(r"[\n.;:]", str(entry)):
                if 3 <= len(sentence.split()) <= 30 and not re.search(r"[%<>={}_/\\\d|\a-]", sentence):
                    seen.add(" ".join(sentence.split()))
    return sorted(seen)
