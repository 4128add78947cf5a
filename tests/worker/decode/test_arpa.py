"""Language models: the file's errors by line, and the graph against the definition of back-off."""

from pathlib import Path

import mlx.core as mx
import numpy as np
import pytest

from spool.errors import InvalidRequest
from worker.decode import BEGIN, END, UNKNOWN, BoundGraph, Graph, language_model, read_arpa

GOLDEN = Path(__file__).parents[2] / "golden"
PIECES = ("<unk>", "▁a", "▁b", "c", "▁the")
LN10 = np.log(10)
SMALL = """a comment before the data
\\data\\
ngram 1=6
ngram 2=3

\\1-grams:
-1.0\t<unk>
-99\t<s>\t-0.3
-0.9\t</s>
-0.5\t▁a\t-0.2
-0.6\t▁b\t-0.1
-0.7\tc

\\2-grams:
-0.1\t<s> ▁a
-0.4\t▁a ▁b
-0.8\t▁b </s>

\\end\\
"""


def write(folder: Path, text: str) -> Path:
    path = folder / "lm.arpa"
    path.write_text(text, encoding="utf-8")
    return path


def costs(graph: Graph, tokens: list[int]) -> tuple[list[float], float]:
    """What each token cost, and the end after them."""
    bound = BoundGraph([graph], [0])
    state = bound.start(1)
    paid: list[float] = []
    for token in tokens:
        paid.append(float(np.array(bound.label_scores(state, mx.ones(1)))[0, 0, token]))
        state = bound.advance(state, mx.zeros((1, 1), mx.int32), mx.array([[token]]))
    return paid, float(np.array(bound.ends(state)).item())


def test_pieces_and_back_off(tmp_path: Path) -> None:
    arpa = read_arpa(write(tmp_path, SMALL), PIECES)
    graph = language_model(arpa, len(PIECES))

    paid, end = costs(graph, [1, 2, 3, 4, 2])

    # <s> a and a b are known; b c backs off, as does all after c; "the" shares <unk> with the piece <unk>.
    expected = np.array([-0.1, -0.4, -0.1 - 0.7, -1.0 - np.log10(2), -0.6]) * LN10
    assert paid == pytest.approx(expected, abs=1e-5)
    assert end == pytest.approx(-0.8 * LN10, abs=1e-5)
    assert costs(graph, [])[1] == pytest.approx((-0.3 - 0.9) * LN10, abs=1e-5)


def test_blanks_between_fields_and_line_ends_of_windows(tmp_path: Path) -> None:
    plain = read_arpa(write(tmp_path, SMALL), PIECES)
    spaced = write(tmp_path, SMALL.replace("\t", "  "))
    assert {g: e.log_prob for g, e in read_arpa(spaced, PIECES).entries.items()} == {
        g: e.log_prob for g, e in plain.entries.items()
    }
    spaced.write_bytes(SMALL.replace("\n", "\r\n").encode())
    assert read_arpa(spaced, PIECES).entries == plain.entries


def test_any_context_of_a_real_file_costs_what_the_definition_says() -> None:
    pieces = tuple(f"piece{i}" for i in range(64))
    arpa = read_arpa(GOLDEN / "lm.arpa", pieces)
    graph = language_model(arpa, 64)
    unknown = arpa.entries[UNKNOWN,].log_prob - np.log(4)  # tokens 60 to 63 are not in the file

    def cost(context: tuple[int, ...], token: int) -> float:
        if (*context, token) in arpa.entries:
            return arpa.entries[*context, token].log_prob
        if not context:
            return unknown
        backoff = arpa.entries[context].backoff if context in arpa.entries else 0.0
        return backoff + cost(context[1:], token)

    rng = np.random.default_rng(0)
    grams = [gram for gram in arpa.entries if len(gram) == 3 and min(gram) >= 0]
    for _ in range(30):
        walk = [*grams[rng.integers(len(grams))], *rng.integers(0, 64, 4).tolist()]
        paid, end = costs(graph, walk)
        history = (BEGIN, *walk)
        expected = [cost(history[max(0, i - 1) : i + 1], token) for i, token in enumerate(walk)]
        assert paid == pytest.approx(expected, abs=1e-4)
        assert end == pytest.approx(cost(history[-2:], END), abs=1e-4)


@pytest.mark.parametrize(
    ("old", "new", "words"),
    [
        ("▁a ▁b", "▁a ▁zebra", "line 16: '▁zebra' is not a token"),
        ("-0.6\t▁b\t-0.1", "-0.6 ▁b and more -0.1", "line 11: not a 1-gram"),
        ("-0.6\t▁b", "minus\t▁b", "line 11: a number is expected"),
        ("-0.6\t▁b", "nan\t▁b", "line 11: a probability"),
        ("-0.6\t▁b", "0.6\t▁b", "line 11: a probability"),
        ("-0.6\t▁b", "-0.6\t▁a", "line 11: ▁a is repeated"),
        ("ngram 2=3", "ngram 2=4", "line 14: 4 2-grams are announced, and 3 follow"),
        ("ngram 2=3", "ngram 3=3", "line 4: not a count"),
        ("\\2-grams:", "\\3-grams:", "line 14: expected"),
        ("▁b </s>", "▁the ▁a", "line 17: ▁the is not a 1-gram"),
        ("</s>\n", "▁the\n", "</s> is not among"),
        ("\\end\\", "", "ends at line 17, before the end"),
        ("\\data\\", "data", "ends at line"),
        ("-0.4\t▁a ▁b", "-0.4\t▁a ▁b\t\t0\t0", "line 16: not a 2-gram"),
    ],
)
def test_a_broken_file_is_refused_by_line(tmp_path: Path, old: str, new: str, words: str) -> None:
    with pytest.raises(InvalidRequest, match=words.replace("\\", "\\\\")) as caught:
        read_arpa(write(tmp_path, SMALL.replace(old, new, 1)), PIECES)
    assert "lm.arpa" in caught.value.message


def test_what_is_no_text_or_not_there_is_refused(tmp_path: Path) -> None:
    (tmp_path / "lm.bin").write_bytes(b"\x80\x04\xff" * 100)
    with pytest.raises(InvalidRequest, match="UTF-8"):
        read_arpa(tmp_path / "lm.bin", PIECES)
    with pytest.raises(InvalidRequest, match="cannot be read: No such file"):
        read_arpa(tmp_path / "gone.arpa", PIECES)


def test_rows_of_a_batch_walk_apart() -> None:
    graph = language_model(read_arpa(GOLDEN / "lm.arpa", tuple("x" * i for i in range(2, 66))), 64)
    bound = BoundGraph([graph], [0, 0, 0])
    alphas = mx.array([1.0, 1.0, 2.0])
    emitted = mx.array([[0, 1], [2, 3], [61, 5]], mx.int32)
    state = bound.advance(bound.start(2), mx.zeros((3, 2), mx.int32), emitted)

    together = np.array(bound.label_scores(state, alphas))

    for row in range(3):
        alone = BoundGraph([graph], [0]).label_scores(state[row : row + 1], alphas[row : row + 1])
        assert (together[row] == np.array(alone)[0]).all()
