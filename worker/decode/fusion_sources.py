"""From options to the fusion of one batch: the language model's file read once, phrases as tokens.

Knows files, texts and the tokenizer; `lm`, `boost` and `fusion` know the rest.
"""

import math
from collections.abc import Hashable, Sequence
from functools import lru_cache
from pathlib import Path
from typing import Protocol

from spool.errors import InvalidRequest
from worker.decode.arpa import read_arpa
from worker.decode.boost import phrase_tree
from worker.decode.fusion import Fusion, Source
from worker.decode.graph import BoundGraph, Graph
from worker.decode.hypothesis import FusionOptions
from worker.decode.lm import language_model

MOST_PHRASES = 100_000
LONGEST_PHRASE = 200  # characters
Phrases = tuple[str, ...]


class Speller(Hashable, Protocol):
    """What fusion needs of a tokenizer."""

    @property
    def pieces(self) -> tuple[str, ...]:
        """The piece of each id."""

    def encode(self, text: str) -> list[int]:
        """The ids of a text. Raises InvalidRequest where it cannot be written."""


def make_fusion(
    tokenizer: Speller, options: FusionOptions, batch: int, phrases: Sequence[Phrases] | None = None
) -> Fusion | None:
    """What `options` ask for, for `batch` utterances; None where that is nothing.

    phrases: those of each utterance, beside `options.phrases` which are everybody's. Raises InvalidRequest:
    a weight is no number, the ARPA file is broken, a phrase is too long or cannot be written in tokens.
    """
    if not (math.isfinite(options.alpha) and math.isfinite(options.boost)):
        raise InvalidRequest("the weights of a language model and of phrases must be finite numbers")
    if phrases is not None and len(phrases) != batch:
        raise ValueError(f"{len(phrases)} lists of phrases for {batch} utterances")
    sources = []
    if options.lm is not None:
        graph = _read_model(Path(options.lm), tokenizer.pieces)
        bound, everywhere = BoundGraph([graph], [0] * batch), (True,) * batch
        sources.append(Source(bound, options.alpha, sentence_end=True, heard=everywhere))
    own = [options.phrases + more for more in phrases] if phrases is not None else [options.phrases] * batch
    if any(any(row) for row in own):
        kinds = list(dict.fromkeys(own))
        graphs = [_tree(tokenizer, kind) for kind in kinds]
        bound = BoundGraph(graphs, [kinds.index(row) for row in own])
        heard = tuple(any(phrase.strip() for phrase in row) for row in own)
        sources.append(Source(bound, options.boost, sentence_end=False, heard=heard))
    return Fusion(sources, weighted=options.weighted) if sources else None


def _read_model(path: Path, pieces: tuple[str, ...]) -> Graph:
    try:
        facts = path.stat()
    except OSError as error:
        raise InvalidRequest(f"{path}: the language model cannot be read: {error.strerror}") from error
    return _kept_model(path, facts.st_mtime_ns, facts.st_size, pieces)


@lru_cache(maxsize=4)
def _kept_model(path: Path, _changed: int, _size: int, pieces: tuple[str, ...]) -> Graph:
    return language_model(read_arpa(path, pieces), len(pieces))


@lru_cache(maxsize=64)
def _tree(tokenizer: Speller, phrases: Phrases) -> Graph:
    """The graph of phrases; blank ones are nothing, and one that stands twice is one."""
    if len(phrases) > MOST_PHRASES:
        raise InvalidRequest(f"{len(phrases)} phrases are more than {MOST_PHRASES}")
    texts = dict.fromkeys(" ".join(phrase.split()) for phrase in phrases)
    for text in texts:
        if len(text) > LONGEST_PHRASE:
            raise InvalidRequest(f"the phrase {text[:40]!r}… is longer than {LONGEST_PHRASE} characters")
    return phrase_tree([tokenizer.encode(text) for text in texts if text], len(tokenizer.pieces))
