"""Language models estimated from texts: against the equations by hand and in exact numbers, and read back."""

import math
from collections import Counter
from fractions import Fraction
from pathlib import Path

import pytest

from spool.errors import InvalidRequest
from worker.decode import BEGIN, END, FALLBACK, LN10, language_model, read_arpa, write_arpa
from worker.decode.fusion import estimate as module
from worker.decode.fusion.estimate import estimate
from worker.local import build_language_model
from worker.models import Tokenizer

DEMO = Path(__file__).parents[4] / "models" / "demo" / "tokenizer.model"
KENLM = Path(__file__).parents[3] / "golden" / "kenlm.arpa"
A, B, C = 0, 1, 2


def test_a_bigram_model_has_the_probabilities_that_the_equations_give() -> None:
    # "a b", "a c": continuation counts a 1 (after <s>), b 1, c 1, </s> 2 (after b and c)
    model = estimate([[A, B], [A, C]], 3, 2, FALLBACK)

    # Unigrams: discounts 0.5 and 1 leave (3 * 0.5 + 1) / 5 for the uniform distribution over 4
    uniform = Fraction(5, 2) / 5 / 4
    one = {token: Fraction(1, 2) / 5 + uniform for token in (A, B, C)} | {END: Fraction(1) / 5 + uniform}
    assert sum(one.values()) == 1
    for token, value in one.items():
        assert model.probabilities[token,] == pytest.approx(float(value))
    # After <s>: "a" twice, less 1; after "a": b and c once, less 0.5 each
    assert model.backoffs[BEGIN,] == pytest.approx(0.5)
    assert model.probabilities[BEGIN, A] == pytest.approx(float(Fraction(1, 2) + one[A] / 2))
    assert model.backoffs[A,] == pytest.approx(0.5)
    assert model.probabilities[A, B] == pytest.approx(float(Fraction(1, 4) + one[B] / 2))
    assert model.probabilities[B, END] == pytest.approx(float(Fraction(1, 2) + one[END] / 2))


LINES = [[A, B, A, B], [A, B, C], [B, A], [C], [C], []]
MANY = [[(3 * i * j + j * j) % 7 for j in range(i % 9 + 1)] for i in range(60)]


@pytest.mark.parametrize("order", [1, 2, 3, 4, 6, 9])
@pytest.mark.parametrize("lines", [LINES, MANY])
def test_what_follows_any_context_adds_up_to_one(lines: list[list[int]], order: int) -> None:
    """Also where lines are shorter than the order."""
    model = estimate(lines, 8, order)
    assert model.order == min(order, max(map(len, lines)) + 2)

    def probability(context: tuple[int, ...], token: int) -> float:
        if (*context, token) in model.probabilities:
            return model.probabilities[*context, token]
        return model.backoffs.get(context, 1.0) * probability(context[1:], token)

    contexts = {gram[:-1] for gram in model.probabilities} | {(C, 7)}
    assert max(map(len, contexts)) <= max(model.order - 1, 2)
    for context in contexts:
        following = [probability(context, token) for token in (*range(8), END)]
        assert min(following) > 0
        assert sum(following) == pytest.approx(1.0, abs=1e-9), context


def test_discounts_are_estimated_where_the_text_is_large_enough() -> None:
    assert estimate(MANY, 8, 3) != estimate(MANY, 8, 3, FALLBACK)
    assert estimate(LINES, 8, 3) == estimate(LINES, 8, 3, FALLBACK)


def test_it_is_what_kenlm_makes_of_the_same_text(monkeypatch: pytest.MonkeyPatch) -> None:
    # lmplz -o 4 --discount_fallback 0.5 1 1.5, of MANY with token i written "t{i}": its vocabulary is the
    # tokens and <unk>, which is our token 7. It finds discounts for orders 2 and 4. Of the last n-gram of
    # each order its statistics have the occurrences, not the adjusted count: 20 bigrams count 1, not 21.
    y = 20 / (20 + 2 * 7)
    own = module._discounts

    def discounts(level: Counter[tuple[int, ...]]) -> tuple[float, float, float]:
        return (y, 2 - 3 * y * 3 / 7, 3 - 4 * y * 3 / 3) if len(level) == 36 else own(level)

    assert (
        module._discounts(module._adjust_counts([(BEGIN, *line, END) for line in MANY], 4)[1])[0] == 21 / 35
    )
    monkeypatch.setattr(module, "_discounts", discounts)
    model = estimate(MANY, 8, 4)
    ids = {f"t{token}": token for token in range(7)} | {"<unk>": 7, "<s>": BEGIN, "</s>": END}
    theirs: dict[tuple[int, ...], tuple[float, float]] = {}
    for line in KENLM.read_text().splitlines():
        shown, words, *rest = line.split("\t") if "\t" in line else ("", "")
        if words and words != "<s>":
            theirs[tuple(ids[word] for word in words.split())] = (float(shown), float(*rest or ["0"]))
    assert theirs.keys() == model.probabilities.keys()
    assert len(theirs) == 9 + 36 + 64 + 69
    for gram, (probability, backoff) in theirs.items():
        assert math.log10(model.probabilities[gram]) == pytest.approx(probability, abs=1e-6), gram
        assert math.log10(model.backoffs.get(gram, 1.0)) == pytest.approx(backoff, abs=1e-6), gram


def test_a_model_is_read_back_over_the_same_tokens_only(tmp_path: Path) -> None:
    for pieces in (("▁a", "▁b", "<unk>"), ("a", "b", " ")):  # as pieces, and as the codes of NeMo
        model = estimate([[0, 1], [1, 1, 0]], 3, 3)
        path = tmp_path / "lm.arpa"
        count = write_arpa(path, model.order, model.probabilities, model.backoffs, pieces)
        read = read_arpa(path, pieces)
        assert (read.order, count) == (3, len(model.probabilities) + 1)
        language_model(read, len(pieces))
        for gram, entry in read.entries.items():
            if gram in model.probabilities:
                assert 10 ** (entry.log_prob / LN10) == pytest.approx(model.probabilities[gram], rel=1e-5)
        assert {gram for gram in read.entries if len(gram) == 3} == {
            gram for gram in model.probabilities if len(gram) == 3
        }
    with pytest.raises(InvalidRequest, match="tokens of another model"):
        read_arpa(path, ("a", "c", " "))


def test_texts_without_a_word_to_build_from_are_refused_by_name(tmp_path: Path) -> None:
    tokenizer, text, output = Tokenizer.from_file(DEMO), tmp_path / "text.txt", tmp_path / "lm.arpa"

    def build(content: bytes, order: int = 4) -> str:
        text.write_bytes(content)
        with pytest.raises(InvalidRequest) as refused:
            build_language_model([text], tokenizer, order, output)
        assert not output.exists()
        return refused.value.message

    assert "no words" in build(b"\n  \n")
    assert "none of the 2 words" in build("маяк логос".encode())
    assert "not UTF-8" in build(b"\xff\xfe")
    assert "--order: 0" in build(b"the light", order=0)
    with pytest.raises(InvalidRequest, match="cannot be read"):
        build_language_model([tmp_path / "nothing.txt"], tokenizer, 4, output)

    # Words that cannot be spelled are left out and counted; the others are folded and stay
    text.write_text("The Lighthouse маяк keeper\n", encoding="utf-8")
    built = build_language_model([text], tokenizer, 16, output)
    assert (built.sentences, built.unspelled) == (1, 1)
    assert built.order == built.tokens + 2, "no sentence is longer"
    assert read_arpa(output, tokenizer.pieces).order == built.order
