"""At a seam no word is lost and none is said twice."""

from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from spool.domain import ChunkSpan, DecodedChunk, Recognition, Word
from worker.segmentation.stitch import stitch

RATE = 16_000
CUT = 10.0


def word(text: str, middle: float, length: float = 0.2, channel: int = 0) -> Word:
    start = max(0.0, middle - length / 2)
    return Word(text=text, start=start, end=start + length, confidence=0.9, channel=channel)


def chunk(
    core: tuple[float, float], span: tuple[float, float], words: list[Word], channel: int = 0
) -> DecodedChunk:
    core_start, core_end, start, end = (round(second * RATE) for second in (*core, *span))
    return DecodedChunk(
        ChunkSpan(channel, 0, core_start, core_end, start, end), Recognition(words=tuple(words))
    )


def seam(left: list[Word], right: list[Word]) -> list[str]:
    """The words after a cut at 10 s that both sides heard 2 s across."""
    chunks = [chunk((0, CUT), (0, CUT + 2), left), chunk((CUT, 20), (CUT - 2, 20), right)]
    return [word.text for word in stitch(chunks)]


def test_nothing_is_nothing() -> None:
    assert stitch([]) == []
    assert stitch([chunk((0, 10), (0, 10), [])]) == []


def test_words_of_a_cut_at_a_pause_are_joined_as_they_are() -> None:
    left = [word("one", 9.5), word("two", 10.05)]  # a frame beyond the cut, as encoders do
    chunks = [
        chunk((0, 10), (0, 10), left),
        chunk((10, 20), (10, 20), [word("two", 10.3), word("three", 11)]),
    ]
    assert [w.text for w in stitch(chunks)] == ["one", "two", "two", "three"]


@pytest.mark.parametrize("left_time", [9.9, 10.0, 10.1])
@pytest.mark.parametrize("right_time", [9.9, 10.0, 10.1])
def test_a_word_on_the_cut_is_kept_once(left_time: float, right_time: float) -> None:
    left = [word("before", 9.0), word("seam", left_time), word("after", 11.0)]
    right = [word("before", 9.0), word("seam", right_time), word("after", 11.0)]
    assert seam(left, right) == ["before", "seam", "after"]


def test_case_and_punctuation_make_no_second_word() -> None:
    assert len(seam([word("Seam.", 9.95)], [word("seam", 10.06)])) == 1


def test_two_opinions_about_one_word_give_one_word() -> None:
    # Each side puts its own word on the other's ground: by cores alone both would go.
    assert len(seam([word("their", 10.05)], [word("there", 9.95)])) == 1
    assert len(seam([word("their", 9.95)], [word("there", 10.05)])) == 1


def test_each_side_is_believed_on_its_own_ground() -> None:
    left = [word("a", 8.5), word("b", 9.3), word("wrong", 11.5)]
    right = [word("cut", 8.1), word("b", 9.3), word("c", 10.5), word("right", 11.5)]
    assert seam(left, right) == ["a", "b", "c", "right"]


def test_a_word_that_only_one_side_heard_at_the_cut_is_kept() -> None:
    assert seam([word("a", 9.0), word("only", 10.2)], [word("a", 9.0), word("b", 11.0)]) == ["a", "only", "b"]
    assert seam([word("a", 9.0)], [word("a", 9.0), word("only", 9.8), word("b", 11.0)]) == ["a", "only", "b"]


def test_a_word_that_covers_another_is_not_kept_beside_it() -> None:
    left = [word("every", 9.7, 0.2), word("body", 9.95, 0.3)]
    right = [word("everybody", 10.02, 0.6)]
    assert seam(left, right).count("everybody") + seam(left, right).count("body") == 1


def test_repeated_words_are_counted_right() -> None:
    left = [word("no", 8.0 + 0.3 * i) for i in range(13)]
    right = [word("no", 8.0 + 0.3 * i + 0.05) for i in range(1, 20)]
    assert len(seam(left, right)) == 20


def test_a_missing_neighbour_costs_no_word() -> None:
    left = chunk((0, 10), (0, 12), [word("a", 9.0), word("b", 11.0)])
    assert [w.text for w in stitch([left])] == ["a", "b"]
    far = chunk((30, 40), (30, 40), [word("z", 31.0)])
    assert [w.text for w in stitch([far, left])] == ["a", "b", "z"]


def test_a_hush_after_a_hard_cut_keeps_the_words_on_the_cut() -> None:
    left = chunk((0, 10), (0, 12), [word("a", 9.0), word("b", 10.1)])
    silent = chunk((10, 20), (10, 20), [])
    assert [w.text for w in stitch([left, silent])] == ["a", "b"]


def test_channels_do_not_touch() -> None:
    left = chunk((0, 10), (0, 12), [word("a", 9.95)], channel=0)
    right = chunk((10, 20), (8, 20), [word("a", 10.05)], channel=1)
    words = stitch([right, left])
    assert [(w.text, w.channel) for w in words] == [("a", 0), ("a", 1)]


def test_words_come_in_order_and_do_not_overlap() -> None:
    chunks = [
        chunk((0, 10), (0, 12), [word("a", 9.9, 0.5), word("b", 10.3, 0.5)]),
        chunk((10, 20), (8, 20), [word("a", 9.85, 0.5), word("b", 10.2, 0.5), word("c", 10.4, 0.5)]),
    ]
    words = stitch(chunks)
    assert [w.text for w in words] == ["a", "b", "c"]
    for first, second in pairwise(words):
        assert first.start <= first.end <= second.start


WORDS = st.sampled_from(["no", "yes", "the", "of", "seven", "stitch"])


@settings(max_examples=300, deadline=None)
@given(data=st.data())
def test_consistent_words_are_neither_lost_nor_doubled(data: st.DataObject) -> None:
    """Many overlapped chunks; each hears all words of its span, 0.1 s off, and some at its edges."""
    gaps = data.draw(st.lists(st.floats(0.22, 1.5), min_size=5, max_size=60))
    texts = data.draw(st.lists(WORDS, min_size=len(gaps), max_size=len(gaps)))
    middles = [sum(gaps[: i + 1]) for i in range(len(gaps))]
    total = middles[-1] + 1
    cuts = [0.0, *[cut for cut in (6.0, 13.0, 19.5, 27.0) if cut < total - 2], total]
    jitter = st.floats(-0.1, 0.1)
    chunks = []
    for start, end in pairwise(cuts):
        first = start - 2 if start else 0.0
        last = end + 2 if end < total else total
        heard = [
            word(text, max(0.05, middle + data.draw(jitter)), 0.1)
            for text, middle in zip(texts, middles, strict=True)
            if first + data.draw(jitter) <= middle < last + data.draw(jitter)
            or (first == 0.0 and middle < 1)
            or (last == total and middle > total - 1.5)
        ]
        chunks.append(chunk((start, end), (first, last), sorted(heard, key=lambda w: w.start)))
    assert [w.text for w in stitch(chunks)] == texts


@settings(max_examples=200, deadline=None)
@given(data=st.data())
def test_any_words_at_all_come_out_ordered_and_at_most_once_each(data: st.DataObject) -> None:
    times = st.lists(st.floats(8.0, 12.0), max_size=12).map(sorted)
    left = [word(data.draw(WORDS), t) for t in data.draw(times)]
    right = [word(data.draw(WORDS), t) for t in data.draw(times)]
    chunks = [chunk((0, CUT), (0, 12), left), chunk((CUT, 20), (8, 20), right)]
    words = stitch(chunks)
    assert len(words) <= len(left) + len(right)
    assert all(a.end <= b.start or a.start == b.start for a, b in pairwise(words))
    # What lies on a side's own ground, beyond reach of the other's doubts, is never dropped.
    for side, own in ((left, lambda t: t < CUT - 0.5), (right, lambda t: t > CUT + 0.5)):
        for heard in side:
            if own((heard.start + heard.end) / 2):
                assert any(w.text == heard.text and abs(w.start - heard.start) < 0.6 for w in words)
