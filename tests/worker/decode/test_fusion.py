"""Searches with a language model and phrases, against one utterance and one hypothesis at a time."""

from functools import cache, partial
from itertools import pairwise
from pathlib import Path

import mlx.core as mx
import numpy as np
import pytest

from spool.domain import Hypothesis
from spool.errors import InvalidRequest
from tests.worker.decode.reference import (
    Adviser,
    Encoded,
    HeadModel,
    Network,
    Trace,
    beam_reference,
    greedy_reference,
    random_frames,
    tiny_transducer,
)
from worker.decode import BEGIN, LONGEST_PHRASE, check_options, language_model, phrase_tree, read_arpa
from worker.decode.search import search
from worker.models import CONTEXT_TOKENS, CtcDecoder, CtcHead, DecodeRequest, SearchOptions, Tokenizer

pytestmark = pytest.mark.slow

PIECES = (*("▁" + letter for letter in "abcdefgh"), "<unk>")
LENGTHS = [13, 1, 20, 0, 7]
PHRASES = [("a b", "b c d"), (), ("h g f", "g", "g h"), ("a",), ("", "c c c")]
ALPHA, BOOST = 0.7, 0.9
ASKS = [DecodeRequest(phrases=phrases, boost=BOOST) for phrases in PHRASES]
KINDS = {"rnnt": (), "tdt": (0, 1, 2, 3, 4)}
Model = partial(HeadModel, tokenizer=Tokenizer(PIECES))


@pytest.fixture(scope="module")
def arpa(tmp_path_factory: pytest.TempPathFactory) -> str:
    """Bigrams that favour the alphabet's order; h is unknown to it."""
    return write_arpa(tmp_path_factory.mktemp("lm") / "small.arpa", PIECES[:7])


@pytest.fixture(scope="module")
def other_arpa(tmp_path_factory: pytest.TempPathFactory) -> str:
    """The same the other way round."""
    return write_arpa(tmp_path_factory.mktemp("lm") / "other.arpa", PIECES[6::-1])


def write_arpa(path: Path, order: tuple[str, ...]) -> str:
    rows = ["-1.2\t<unk>", "-99\t<s>\t-0.2", "-1.0\t</s>"]
    rows += [f"-{0.6 + 0.07 * i:.2f}\t{piece}\t-{0.1 + 0.03 * i:.2f}" for i, piece in enumerate(order)]
    pairs = [f"-0.15\t{one} {two}" for one, two in pairwise(order)]
    pairs += ["-0.3\t<s> ▁c", "-0.25\t▁g </s>"]
    text = [
        f"\\data\\\nngram 1={len(rows)}\nngram 2={len(pairs)}\n\n\\1-grams:",
        *rows,
        "\n\\2-grams:",
        *pairs,
    ]
    path.write_text("\n".join([*text, "", "\\end\\", ""]), encoding="utf-8")
    return str(path)


class Counting(Adviser):
    """The definition of back-off and of phrases, for one utterance."""

    def __init__(
        self,
        path: str | None,
        phrases: tuple[str, ...],
        *,
        weighted: bool,
        sentence_end: bool = False,
        alpha: float = ALPHA,
        boost: float = BOOST,
        context: tuple[int, ...] = (),
    ) -> None:
        self._lm, self._boost, self._context = alpha, boost, context
        self._entries = read_arpa(Path(path), PIECES).entries if path else {}
        self._phrases = [[PIECES.index("▁" + letter) for letter in phrase.split()] for phrase in phrases]
        self._alpha = (alpha if path else 0) + (boost if any(phrases) else 0)
        self._weighted, self._sentence_end = weighted, sentence_end
        self._earned = cache(self._count)

    def _cost(self, context: tuple[int, ...], token: int) -> float:
        if (*context, token) in self._entries:
            return self._entries[*context, token].log_prob
        if not context:  # h and <unk> share what is left
            return self._entries[-3,].log_prob - np.log(2)
        back = self._entries[context].backoff if context in self._entries else 0.0
        return back + self._cost((), token)

    def _count(self, tokens: tuple[int, ...], *, end: bool) -> float:
        def gain(length: int) -> float:
            return sum(1.0 if n == 1 else 2 + np.log(n) for n in range(1, length + 1))

        total, run = 0.0, []
        for token in [*tokens, None] if end else tokens:
            run.append(token)
            while run and not any(phrase[: len(run)] == run for phrase in self._phrases):
                done = max((len(p) for p in self._phrases if p and p == run[: len(p)]), default=0)
                total, run = total + gain(done), run[max(done, 1) :]
        return total + gain(len(run))

    def bonus(self, tokens: tuple[int, ...]) -> np.ndarray:
        tokens = self._context + tokens
        last = (BEGIN, *tokens)[-1:]
        said = self._earned(tokens, end=False)
        return np.array(
            [
                (self._lm * self._cost(last, token) if self._entries else 0.0)
                + self._boost * (self._earned((*tokens, token), end=False) - said)
                for token in range(len(PIECES))
            ],
            np.float32,
        )

    def end(self, tokens: tuple[int, ...]) -> float:
        tokens = self._context + tokens
        sentence = self._lm * self._cost((BEGIN, *tokens)[-1:], -2) if self._sentence_end else 0.0
        return sentence + self._boost * (self._earned(tokens, end=True) - self._earned(tokens, end=False))

    def fuse(self, tokens: tuple[int, ...], log_probs: np.ndarray) -> np.ndarray:
        fused = super().fuse(tokens, log_probs)
        if self._weighted:
            fused[:-1] += self._alpha * np.log(1 - min(np.exp(log_probs[-1]), 0.99))
            fused[-1] *= 1 + self._alpha
        return fused


def assert_traces(found: list[Hypothesis], expected: list[Trace]) -> None:
    assert [(h.tokens, h.times) for h in found] == [(t.tokens, t.times) for t in expected]
    assert [h.score for h in found] == pytest.approx([float(t.score) for t in expected], abs=5e-4)
    for one, other in zip(found, expected, strict=True):
        assert one.durations == other.durations
        assert one.confidences == pytest.approx(other.confidences, abs=1e-4)


def batch(seed: int) -> Encoded:
    return Encoded(random_frames(seed, LENGTHS), np.array(LENGTHS, np.int32))


def options(beam: int, *, weighted: bool = False) -> SearchOptions:
    if beam == 0:
        return SearchOptions()
    return SearchOptions(decoder="beam", beam=beam, nbest=beam, max_symbols=4, lm_blanks=weighted)


def asks_with(lm: str | None) -> list[DecodeRequest]:
    return [ask.model_copy(update={"language_model": lm, "lm_weight": ALPHA}) for ask in ASKS]


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("beam", [1, 4, pytest.param(8, marks=pytest.mark.long)])
@pytest.mark.parametrize("with_lm", [False, True])
def test_a_beam_with_phrases_of_each_utterance_equals_the_restatement(
    arpa: str, kind: str, weighted: bool, beam: int, with_lm: bool
) -> None:
    transducer, encoded = tiny_transducer(3, len(PIECES), KINDS[kind]), batch(11)
    lm = arpa if with_lm else None

    found = search(Model(transducer), encoded, options(beam, weighted=weighted), asks_with(lm))

    for row, length in enumerate(LENGTHS):
        adviser = Counting(lm, PHRASES[row], weighted=weighted)
        frames = np.array(encoded.frames)[row, :length]
        assert_traces(found[row], beam_reference(Network(transducer), frames, beam, 4, adviser))


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("with_lm", [False, True])
def test_greedy_with_phrases_of_each_utterance_equals_the_restatement(
    arpa: str, kind: str, with_lm: bool
) -> None:
    transducer, encoded = tiny_transducer(3, len(PIECES), KINDS[kind]), batch(11)
    lm = arpa if with_lm else None

    found = search(Model(transducer), encoded, options(0), asks_with(lm))

    for row, length in enumerate(LENGTHS):
        adviser = Counting(lm, PHRASES[row], weighted=False)
        frames = np.array(encoded.frames)[row, :length]
        assert_traces(found[row], [greedy_reference(Network(transducer), frames, 10, adviser)])


def ctc_model(width: int) -> HeadModel:
    decoder = CtcDecoder(width, width - 1)
    decoder.decoder_layers[0].weight = mx.eye(width)
    decoder.decoder_layers[0].bias = mx.zeros(width)
    return Model(ctc=CtcHead(decoder, width - 1))


def restated_ctc(log_probs: np.ndarray, beam: int, adviser: Adviser) -> list[tuple[tuple[int, ...], float]]:
    """Tokens and score of each hypothesis: NeMo's beam over whole alignments."""
    blank = log_probs.shape[1] - 1
    kept: list[tuple[float, tuple[int, ...], int]] = [(0.0, (), -1)]
    for frame in log_probs:
        longer = []
        for score, tokens, last in kept:
            gains = np.broadcast_to(adviser.bonus(tokens), blank)
            for label in range(blank + 1):
                if label in (last, blank):
                    longer.append((score + frame[label], tokens, label))
                else:
                    longer.append((score + frame[label] + gains[label], (*tokens, label), label))
        kept = []
        for score, tokens, last in sorted(longer, key=lambda one: -one[0])[:beam]:
            if all((tokens, last) != (one[1], one[2]) for one in kept):
                kept.append((score, tokens, last))
        kept = [one for one in kept if one[0] > kept[0][0] - 20]
    ended = [(tokens, score + adviser.end(tokens)) for score, tokens, _ in kept]
    return sorted(ended, key=lambda one: -one[1])


@pytest.mark.parametrize("beam", [1, 4, pytest.param(8, marks=pytest.mark.long)])
@pytest.mark.parametrize("with_lm", [False, True])
def test_a_ctc_beam_with_phrases_of_each_utterance_equals_the_restatement(
    arpa: str, beam: int, with_lm: bool
) -> None:
    width = len(PIECES) + 1
    logits = np.random.default_rng(4).normal(0, 2, (len(LENGTHS), max(LENGTHS), width)).astype(np.float32)
    encoded = Encoded(mx.array(logits), np.array(LENGTHS, np.int32))
    lm = arpa if with_lm else None

    found = search(ctc_model(width), encoded, options(beam), asks_with(lm))

    for row, length in enumerate(LENGTHS):
        rows = logits[row, :length] - np.log(np.exp(logits[row, :length]).sum(-1, keepdims=True))
        adviser = Counting(lm, PHRASES[row], weighted=False, sentence_end=with_lm)
        want = restated_ctc(rows, beam, adviser)
        assert [h.tokens for h in found[row]] == [tokens for tokens, _ in want]
        assert [h.score for h in found[row]] == pytest.approx([score for _, score in want], abs=5e-4)


def assert_alike(found: list[Hypothesis], expected: list[Hypothesis]) -> None:
    assert [(h.tokens, h.times, h.durations) for h in found] == [
        (h.tokens, h.times, h.durations) for h in expected
    ]
    assert [h.score for h in found] == pytest.approx([h.score for h in expected], abs=1e-4)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("beam", [0, 4])
@pytest.mark.parametrize("weighted", [False, True])
def test_utterances_of_one_batch_ask_for_models_weights_phrases_and_contexts_of_their_own(
    arpa: str, other_arpa: str, kind: str, beam: int, weighted: bool
) -> None:
    model, encoded = Model(tiny_transducer(3, len(PIECES), KINDS[kind])), batch(11)
    asks = [
        DecodeRequest(
            phrases=("a b", "b c d"), boost=0.5, context=(7, 0), language_model=other_arpa, lm_weight=0.4
        ),
        DecodeRequest(phrases=(), boost=1.0, context=(2,), language_model=arpa, lm_weight=0.9),
        DecodeRequest(phrases=("h g f", "g", "g h"), boost=1.5, context=(0, 7, 6)),
        DecodeRequest(language_model=other_arpa),
        DecodeRequest(),
    ]
    base = options(beam, weighted=weighted)

    found = search(model, encoded, base, asks)

    assert model.transducer is not None
    network = Network(model.transducer)
    for row, (ask, length) in enumerate(zip(asks, LENGTHS, strict=True)):
        adviser = Counting(
            ask.language_model,
            ask.phrases,
            weighted=weighted and beam > 0,
            alpha=ask.lm_weight,
            boost=ask.boost,
            context=ask.context,
        )
        frames = np.array(encoded.frames)[row, :length]
        if beam:
            assert_traces(found[row], beam_reference(network, frames, beam, 4, adviser))
        else:
            assert_traces(found[row], [greedy_reference(network, frames, 10, adviser)])
        alone = Encoded(encoded.frames[row : row + 1, :length], encoded.lengths[row : row + 1])
        assert_alike(found[row], search(model, alone, base, [ask])[0])


def test_a_tail_leads_to_the_state_of_the_whole(arpa: str) -> None:
    tokens = np.random.default_rng(1).integers(0, 8, 3000).tolist()
    phrases = phrase_tree([[0, 1], [1, 2, 3], [7, 6, 5], [6], [6, 7]], len(PIECES))
    for graph in (phrases, language_model(read_arpa(Path(arpa), PIECES), len(PIECES))):
        for end in range(CONTEXT_TOKENS, len(tokens), 97):
            assert graph.after(tokens[:end][-CONTEXT_TOKENS:]) == graph.after(tokens[:end])


@pytest.mark.parametrize("beam", [0, 5])
def test_neighbours_with_other_phrases_change_nothing(arpa: str, beam: int) -> None:
    model, encoded = Model(tiny_transducer(7, len(PIECES), (0, 1, 2))), batch(3)
    asked, asks = options(beam, weighted=True), asks_with(arpa)
    together = search(model, encoded, asked, asks)
    order = [3, 1, 4, 0, 2]
    shuffled = Encoded(encoded.frames[mx.array(order)], encoded.lengths[order])
    reordered = search(model, shuffled, asked, [asks[row] for row in order])

    for place, row in enumerate(order):
        length = LENGTHS[row]
        alone = Encoded(encoded.frames[row : row + 1, :length], encoded.lengths[row : row + 1])
        solo = search(model, alone, asked, [asks[row]])[0]
        for found in (together[row], reordered[place]):
            assert [(h.tokens, h.times, h.durations) for h in found] == [
                (h.tokens, h.times, h.durations) for h in solo
            ]
            assert [h.score for h in found] == pytest.approx([h.score for h in solo], abs=1e-4)


@pytest.mark.parametrize("beam", [0, 4])
def test_nothing_to_fuse_is_the_plain_search(beam: int) -> None:
    model, encoded = Model(tiny_transducer(7, len(PIECES), (0, 1, 2))), batch(3)
    plain = options(beam)

    expected = search(model, encoded, plain)

    assert search(model, encoded, plain, [DecodeRequest()] * len(LENGTHS)) == expected
    blank = search(model, encoded, plain, [DecodeRequest(phrases=("", "  "))] * len(LENGTHS))
    assert [[h.tokens for h in row] for row in blank] == [[h.tokens for h in row] for row in expected]


def test_a_boosted_phrase_is_found_where_the_model_alone_hears_another() -> None:
    width = len(PIECES) + 1
    a, b, c, blank = 0, 1, 2, width - 1
    logits = np.full((1, 4, width), -9.0, np.float32)
    for frame, (heard, nearly) in enumerate([(a, a), (blank, blank), (c, b), (blank, blank)]):
        logits[0, frame, nearly], logits[0, frame, heard] = 1.5, 2.0
    encoded = Encoded(mx.array(logits), np.array([4], np.int32))

    plain = search(ctc_model(width), encoded, SearchOptions(decoder="beam"))
    boosted = search(
        ctc_model(width), encoded, SearchOptions(decoder="beam"), [DecodeRequest(phrases=("a b",))]
    )

    assert plain[0][0].tokens == (a, c)
    assert boosted[0][0].tokens == (a, b)
    assert boosted[0][0].confidences[1] < plain[0][0].confidences[1]


@pytest.mark.parametrize("poison", [np.nan, np.inf])
@pytest.mark.parametrize("beam", [0, 4])
def test_an_utterance_that_is_not_a_number_fails_alone(arpa: str, poison: float, beam: int) -> None:
    model = Model(tiny_transducer(2, len(PIECES), (0, 1, 2)))
    frames = np.array(random_frames(1, [9, 12, 6]))
    clean = Encoded(mx.array(frames), np.array([9, 12, 6], np.int32))
    frames[1, 5:] = poison
    broken = Encoded(mx.array(frames), clean.lengths)

    found = search(model, broken, options(beam), asks_with(arpa)[:3])

    expected = search(model, clean, options(beam), asks_with(arpa)[:3])
    assert found[1] == []
    assert_alike(found[0], expected[0])
    assert_alike(found[2], expected[2])


def test_ten_thousand_phrases_of_one_utterance_leave_its_neighbours_alone() -> None:
    rng = np.random.default_rng(0)
    many = tuple(" ".join("abcdefgh"[i] for i in rng.integers(0, 8, 12)) for _ in range(10_000))
    model, encoded = Model(tiny_transducer(7, len(PIECES), (0, 1, 2))), batch(3)

    found = search(model, encoded, options(3), [DecodeRequest(phrases=many, boost=BOOST), *ASKS[1:]])

    expected = search(model, encoded, options(3), ASKS)
    assert [[h.tokens for h in row] for row in found[1:]] == [[h.tokens for h in row] for row in expected[1:]]
    assert len(found[0]) > 0


@pytest.mark.parametrize(
    ("ask", "words"),
    [
        (DecodeRequest(phrases=("a " * LONGEST_PHRASE,)), "longer than"),
        (DecodeRequest(phrases=("a",) * 100_001), "more than 100000"),
        (DecodeRequest(phrases=("a",), boost=float("nan")), "finite"),
        (DecodeRequest(boost=float("inf")), "finite"),
        (DecodeRequest(context=(len(PIECES),)), "not a token of the model"),
        (DecodeRequest(context=(-1,)), "not a token of the model"),
        (DecodeRequest(language_model="nowhere.arpa"), "nowhere.arpa: the language model cannot be read"),
    ],
)
def test_what_one_utterance_cannot_ask_is_refused_before_and_in_the_search(
    ask: DecodeRequest, words: str
) -> None:
    model, encoded = Model(tiny_transducer(7, len(PIECES))), batch(3)

    with pytest.raises(InvalidRequest, match=words):
        search(model, encoded, SearchOptions(), [ask, *ASKS[1:]])
    with pytest.raises(InvalidRequest, match=words):
        check_options(model, SearchOptions(), ask)


def test_asks_are_as_many_as_utterances() -> None:
    with pytest.raises(ValueError, match="2 requests for 5 utterances"):
        search(Model(tiny_transducer(7, len(PIECES))), batch(3), SearchOptions(), ASKS[:2])


def test_greedy_ctc_takes_no_fusion() -> None:
    encoded = Encoded(mx.zeros((1, 2, 10)), np.array([2], np.int32))
    with pytest.raises(InvalidRequest, match="beam decoder only"):
        search(ctc_model(10), encoded, SearchOptions(), [DecodeRequest(phrases=("a",))])
