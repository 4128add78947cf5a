"""Rules and top-k against a plain loop over Whisper's rules in numpy, and the rows that sorts get wrong."""

import mlx.core as mx
import numpy as np
import pytest

from kernels.attention import BestTokens, forbidden_bits, rules_topk, rules_topk_reference
from kernels.contracts import same_bits
from kernels.contracts.case import normal
from kernels.runtime import use_backend
from ops.testbed.kernel_cases import TESTED

TOKENS, FIRST = 2300, 2000
SETS = [{3, 700, 1999}, {0, 1, 2, 31, 32, 2005}, set(range(2000))]


def expected(row: np.ndarray, rule: list[int], count: int) -> tuple[list[int], list[float]]:
    """One row in float64: mask, weigh times against text, log-softmax, sort."""
    x = row.astype(np.float64)
    forbidden, text_from, time_from, time_to, outweigh = rule
    x[list(SETS[forbidden])] = -np.inf
    x[: min(text_from, FIRST)] = -np.inf
    x[FIRST : max(FIRST, time_from)] = -np.inf
    x[max(time_to, FIRST) :] = -np.inf
    with np.errstate(divide="ignore"):
        if outweigh and np.log(np.exp(x[FIRST:]).sum()) > x[:FIRST].max():
            x[:FIRST] = -np.inf
        scores = x - np.log(np.exp(x).sum())
    order = sorted(np.flatnonzero(x > -np.inf).tolist(), key=lambda i: (-x[i], i))[:count]
    missing = count - len(order)
    return order + [-1] * missing, [scores[i] for i in order] + [-np.inf] * missing


RULES = [
    [0, 0, FIRST, TOKENS, 1],
    [1, 0, FIRST + 40, TOKENS, 1],
    [0, FIRST, FIRST, FIRST + 51, 1],
    [1, 1990, FIRST + 7, TOKENS, 1],
    [0, 0, TOKENS, TOKENS, 1],
    [2, 0, FIRST + 299, TOKENS, 1],
    [1, 0, FIRST, TOKENS, 0],
]


def both(logits: mx.array, rules: mx.array, count: int) -> tuple[BestTokens, BestTokens]:
    """By kernel and by reference."""
    bits = forbidden_bits(SETS, TOKENS)
    with use_backend(TESTED):
        made = rules_topk(logits, rules, bits, first_time=FIRST, count=count)
        mx.eval(made)
    return made, rules_topk_reference(logits, rules, bits, first_time=FIRST, count=count)


@pytest.mark.parametrize("count", [1, 2, 6, 9, 12])
@pytest.mark.parametrize("lift", [-6.0, 0.0, 6.0])
def test_rows_follow_the_rules(count: int, lift: float) -> None:
    """`lift` makes times unlikely, as likely as text, or likelier."""
    logits = normal(len(RULES), TOKENS, scale=2) + mx.where(mx.arange(TOKENS) >= FIRST, lift, 0.0)
    for found in both(logits, mx.array(RULES, mx.int32), count):
        for row, rule in enumerate(RULES):
            tokens, scores = expected(np.array(logits[row]), rule, count)
            assert found.tokens[row].tolist() == tokens
            np.testing.assert_allclose(np.array(found.scores[row]), scores, atol=1e-5)


@pytest.mark.parametrize("lift", [-6.0, 0.0, 6.0])
def test_gains_are_added_behind_the_rules(lift: float) -> None:
    """What times forbid stays forbidden, and log-probabilities are those of the logits alone."""
    logits = normal(len(RULES), TOKENS, scale=2) + mx.where(mx.arange(TOKENS) >= FIRST, lift, 0.0)
    gains = normal(len(RULES), TOKENS, scale=5)
    bits, rules = forbidden_bits(SETS, TOKENS), mx.array(RULES, mx.int32)
    with use_backend(TESTED):
        found = rules_topk(logits, rules, bits, first_time=FIRST, count=6, gains=gains)
        mx.eval(found)
    assert rules.tolist() == RULES
    for row, rule in enumerate(RULES):
        tokens, scores = expected(np.array(logits[row]), rule, TOKENS)
        sums = {
            token: score + float(gains[row, token])
            for token, score in zip(tokens, scores, strict=True)
            if token >= 0
        }
        best = sorted(sums, key=lambda token: -sums[token])[:6]
        missing = 6 - len(best)
        assert found.tokens[row].tolist() == best + [-1] * missing
        scores = [sums[token] for token in best] + [-np.inf] * missing
        np.testing.assert_allclose(np.array(found.scores[row]), scores, atol=2e-5)
    broken = mx.where(mx.arange(TOKENS) == 1500, mx.nan, logits)
    found = rules_topk(broken, rules, bits, first_time=FIRST, count=2, gains=gains)
    assert found.tokens[0].tolist() == [-1, -1]
    assert found.scores[0].tolist() == [-np.inf, -np.inf]
    with pytest.raises(ValueError, match="gains must be"):
        rules_topk(logits, rules, bits, first_time=FIRST, count=2, gains=gains[:1])


def test_equal_logits_stand_in_the_order_of_their_ids() -> None:
    """All tokens equal, and a few values spread over the whole vocabulary."""
    few = np.random.default_rng(0).integers(0, 3, (2, TOKENS)).astype(np.float32)
    for row in (np.zeros((2, TOKENS), np.float32), few):
        rules = [RULES[6], RULES[4]]
        made, reference = both(mx.array(row), mx.array(rules, mx.int32), 9)
        assert made.tokens.tolist() == reference.tokens.tolist()
        for at, rule in enumerate(rules):
            assert made.tokens[at].tolist() == expected(row[at], rule, 9)[0]


def test_a_row_without_a_token_or_without_numbers_has_no_best_token() -> None:
    logits = np.array(normal(6, TOKENS, scale=2))
    logits[1, 1500] = np.nan
    logits[2, 2100] = np.inf
    logits[3, :] = -np.inf
    logits[4, 700] = np.nan  # forbidden, so nobody sees it
    logits[5, 2100] = np.nan
    rules = [[2, 0, TOKENS, TOKENS, 1], RULES[0], RULES[0], RULES[0], RULES[0], [0, 0, TOKENS, TOKENS, 1]]
    for found in both(mx.array(logits), mx.array(rules, mx.int32), 3):
        assert found.tokens[:4].tolist() == [[-1] * 3] * 4
        assert (np.array(found.scores[:4]) == -np.inf).all()
        assert (np.array(found.tokens[4:]) >= 0).all()
        assert np.isfinite(np.array(found.scores[4:])).all()


def test_minus_infinity_is_no_token() -> None:
    logits = np.full((1, TOKENS), -np.inf, np.float32)
    logits[0, [5, 1234, 2222]] = [1.0, 3.0, 1.0]
    for found in both(mx.array(logits), mx.array([RULES[6]], mx.int32), 5):
        assert found.tokens.tolist() == [[1234, 5, 2222, -1, -1]]
        np.testing.assert_allclose(np.array(found.scores[0, :3]), [-0.23954, -2.23954, -2.23954], atol=1e-5)


def test_times_far_below_text_do_not_underflow_into_a_decision() -> None:
    logits = np.array(normal(2, TOKENS))
    logits[0, FIRST:] -= 200.0
    logits[1, :FIRST] -= 200.0
    text, times = (int(logits[0, 8:1990].argmax()) + 8, int(logits[1, FIRST:].argmax()) + FIRST)
    logits[0, :8], logits[0, 1990:FIRST] = -300.0, -300.0
    for found in both(mx.array(logits), mx.array([[*RULES[6][:4], 1]] * 2, mx.int32), 2):
        assert found.tokens[:, 0].tolist() == [text, times]
        assert np.isfinite(np.array(found.scores)).all()


def test_a_row_is_the_same_alone_and_in_a_batch() -> None:
    logits, rules = normal(len(RULES), TOKENS, scale=2), mx.array(RULES, mx.int32)
    made, _ = both(logits, rules, 6)
    for row in range(len(RULES)):
        alone, _ = both(logits[row : row + 1], rules[row : row + 1], 6)
        assert same_bits(alone.scores, made.scores[row : row + 1])
        assert alone.tokens.tolist() == made.tokens[row : row + 1].tolist()


def test_whole_vocabularies_of_whisper() -> None:
    """51864 to 51866 tokens: chunks of text and of times with ragged ends."""
    for tokens in (51864, 51865, 51866):
        first = tokens - 1501
        logits = normal(3, tokens, scale=3)
        bits = forbidden_bits([range(0, first, 600)], tokens)
        rules = mx.array(
            [[0, 0, first, tokens, 1], [0, 50257, first + 70, tokens, 1], [0, 0, first, tokens, 0]]
        )
        with use_backend(TESTED):
            made = rules_topk(logits, rules, bits, first_time=first, count=6)
        reference = rules_topk_reference(logits, rules, bits, first_time=first, count=6)
        assert made.tokens.tolist() == reference.tokens.tolist()
        # MLX adds 50,000 exponentials one after the other.
        np.testing.assert_allclose(np.array(made.scores), np.array(reference.scores), atol=1e-4)


def test_the_widest_vocabulary_and_beam_fit_a_threadgroup() -> None:
    """The fibers have the memory of an Apple GPU's threadgroup and no more."""
    tokens, first = 51866, 50365
    logits, bits = normal(1, tokens, scale=3), forbidden_bits([[0]], tokens)
    made = {}
    for backend in ("fibers", TESTED):
        with use_backend(backend):
            rules = mx.array([[0, 0, first, tokens, 1]], mx.int32)
            made[backend] = rules_topk(logits, rules, bits, first_time=first, count=9)
    assert made["fibers"].tokens.tolist() == made[TESTED].tokens.tolist()
    assert same_bits(made["fibers"].scores, made[TESTED].scores) or TESTED != "cpu"


def test_no_row_is_no_error_and_bad_input_is_refused() -> None:
    bits, rules = forbidden_bits(SETS, TOKENS), mx.array(RULES[:1], mx.int32)
    with use_backend(TESTED):
        none = rules_topk(mx.zeros((0, TOKENS)), rules[:0], bits, first_time=FIRST, count=4)
    assert none.tokens.shape == none.scores.shape == (0, 4)
    one = mx.zeros((1, TOKENS))
    with pytest.raises(ValueError, match="need rules"):
        rules_topk(one, mx.zeros((2, 5), mx.int32), bits, first_time=FIRST, count=4)
    with pytest.raises(ValueError, match="uint32"):
        rules_topk(one, rules, bits[:, 1:], first_time=FIRST, count=4)
    with pytest.raises(ValueError, match="within 0 to 2299"):
        forbidden_bits([[TOKENS]], TOKENS)
    with pytest.raises(ValueError, match="first time"):
        rules_topk(one, rules, bits, first_time=TOKENS + 1, count=4)
    with pytest.raises(ValueError, match="at least 1"):
        rules_topk(one, rules, bits, first_time=FIRST, count=0)
