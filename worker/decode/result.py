"""Results of a search: hypotheses, words with confidence and alternatives, and a lattice."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from spool.domain.recognition import Hypothesis
from spool.domain.transcript import Lattice, LatticeArc, LatticeEnd, Word
from worker.decode.alignment.emissions import Emissions
from worker.decode.lattice.build import word_graph
from worker.decode.lattice.confidence import arc_posteriors, with_confidence
from worker.decode.lattice.prefix_graph import Record
from worker.decode.lattice.word_graph import WordGraph, best_path, prune_graph, widest_beam, with_posteriors
from worker.decode.recorder import LatticeRecorder
from worker.decode.search import best_of, search
from worker.decode.types import DecodeRequest, SearchOptions
from worker.decode.words import CONFIDENCE_DIGITS, DIGITS, SCORE_DIGITS, words_of
from worker.models.base import Encoded, HeadName, Tokenizer

MOST_ARCS = 5000  # of one chunk's lattice: some 500 kB as JSON


@dataclass(frozen=True, slots=True)
class Answer:
    """One utterance's hypotheses, best first (none if its logits were not finite), and the unpruned lattice
    of a beam (None for greedy). spoken: its words in seconds from its start, if the decoder times them.
    frames: its encoder frames. language: the one it was decoded in, if the model tells. text: its text, if
    that need not be the first hypothesis's. languages: the most probable ones, if the model detected the
    language. reach: the beam that the lattice was already pruned to, as a decoding graph's is; such a lattice
    does not affect the words' confidence. emissions: those of the requested labels."""

    hypotheses: tuple[Hypothesis, ...]
    graph: WordGraph | None
    spoken: tuple[Word, ...] | None = None
    frames: int = 0
    language: str | None = None
    text: str | None = None
    languages: tuple[tuple[str, float], ...] = ()
    reach: float | None = None
    emissions: Emissions | None = None

    def words(
        self, tokenizer: Tokenizer, frame_seconds: float, offset_seconds: float = 0.0, alternatives: int = 0
    ) -> list[Word]:
        """The words of the best hypothesis, as from `words_of`, with the beam's confidence and alternatives.
        Raises EngineError if there is no hypothesis."""
        best = best_of(self.hypotheses)
        if self.spoken is not None:
            return [_move_word(word, offset_seconds) for word in self.spoken]
        words = words_of(best, tokenizer, frame_seconds, offset_seconds)
        if self.graph is None or self.reach is not None:
            return words
        return with_confidence(words, self.graph, frame_seconds, offset_seconds, alternatives)

    def lattice(self, prune: float, frame_seconds: float, seconds: float) -> Lattice | None:
        """The lattice of an utterance of `seconds`, in seconds from its start, pruned to `prune` or, if that
        leaves more than MOST_ARCS arcs, to the beam that leaves no more. None for greedy."""
        if self.graph is None:
            return None
        beam = min(prune, widest_beam(self.graph, MOST_ARCS), prune if self.reach is None else self.reach)
        return lattice_of(prune_graph(self.graph, beam), beam, frame_seconds, seconds)


class Spelling(Protocol):
    """A model that can be searched, and whose tokens can be read."""

    @property
    def heads(self) -> Mapping[HeadName, Any]:
        """The heads by name."""

    @property
    def tokenizer(self) -> Tokenizer:
        """Its tokens, as texts and from texts."""


def answers(
    model: Spelling,
    encoded: Encoded,
    options: SearchOptions,
    asks: Sequence[DecodeRequest] | None = None,
) -> list[Answer]:
    """The results of `search`, with the beam's lattices."""
    recorder = LatticeRecorder([ask.lattice for ask in asks or ()])
    utterances = search(model, encoded, options, asks, recorder)
    records: Sequence[Record | None] = recorder.records() or [None] * len(utterances)
    if recorder.graphs:
        kept = [recorder.graphs.get(row) for row in range(len(utterances))]
        return [
            Answer(
                tuple(hypotheses),
                None if lattice is None else with_posteriors(lattice.words),
                frames=int(frames),
                reach=None if lattice is None else lattice.reach,
            )
            for hypotheses, lattice, frames in zip(utterances, kept, encoded.lengths.tolist(), strict=True)
        ]
    return [
        Answer(
            tuple(hypotheses),
            arc_posteriors(word_graph(record, model.tokenizer))
            if record is not None and hypotheses
            else None,
            frames=int(frames),
        )
        for hypotheses, record, frames in zip(utterances, records, encoded.lengths.tolist(), strict=True)
    ]


def _move_word(word: Word, seconds: float) -> Word:
    if not seconds:
        return word
    start, end = round(word.start + seconds, DIGITS), round(word.end + seconds, DIGITS)
    return word.model_copy(update={"start": start, "end": end})


def lattice_of(graph: WordGraph, prune: float, frame_seconds: float, seconds: float) -> Lattice:
    """The transcript's record of a lattice that was pruned to `prune`."""

    def at(frame: int) -> float:
        return round(min(frame * frame_seconds, seconds), DIGITS)

    ends = [0] * graph.states
    for arc in graph.arcs:
        ends[arc.target] = max(ends[arc.target], ends[arc.source], arc.end)
    return Lattice(
        start=0.0,
        end=round(seconds, DIGITS),
        prune=round(prune, SCORE_DIGITS),
        score=_score(best_path(graph)),
        frame_seconds=frame_seconds,
        times=tuple(map(at, ends)),
        arcs=tuple(
            LatticeArc(
                source=arc.source,
                target=arc.target,
                word=arc.word,
                start=at(arc.start),
                end=at(arc.end),
                acoustic=_score(arc.acoustic),
                lm=_score(arc.fused),
                confidence=round(arc.share, CONFIDENCE_DIGITS),
            )
            for arc in graph.arcs
        ),
        ends=tuple(
            LatticeEnd(state=state, acoustic=_score(end.acoustic), lm=_score(end.fused))
            for state, end in sorted(graph.finals.items())
        ),
    )


def _score(value: float) -> float:
    # Adding zero turns -0.0 into 0.0.
    return round(value, SCORE_DIGITS) + 0.0
