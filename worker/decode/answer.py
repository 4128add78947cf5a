"""An answer as its search gives it: hypotheses, and a lattice for the confidence of words. Plain Python."""

from collections.abc import Sequence
from dataclasses import dataclass

from spool.domain.recognition import Hypothesis
from spool.domain.transcript import Lattice, LatticeArc, LatticeEnd, Word
from spool.errors import EngineError
from worker.decode.alignment.emissions import Emissions
from worker.decode.lattice.confidence import with_confidence
from worker.decode.lattice.word_graph import WordGraph, best_path, prune_graph, widest_beam
from worker.decode.words import CONFIDENCE_DIGITS, DIGITS, SCORE_DIGITS, words_of
from worker.models.base import Tokenizer

MOST_ARCS = 5000  # of one chunk's lattice: some 500 kB as JSON


def best_of(hypotheses: Sequence[Hypothesis]) -> Hypothesis:
    """The first of an utterance's hypotheses. Raises EngineError if it has none."""
    if not hypotheses:
        raise EngineError("the model's output for this utterance is not finite, so it has no words")
    return hypotheses[0]


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
