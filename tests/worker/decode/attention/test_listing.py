"""N-best lists over several windows, against every combination there is."""

import itertools

import numpy as np

from worker.decode import WindowText, combine


def test_combinations_are_the_best_of_all() -> None:
    random = np.random.default_rng(5)
    for sizes in ((3,), (1, 1), (4, 1, 3), (2, 3, 2, 3)):
        # Given lists whose first text need not have the highest score, as in a beam ranked by score a token
        lists = [
            [WindowText((at, place), float(random.normal())) for place in range(size)]
            for at, size in enumerate(sizes)
        ]
        every = list(itertools.product(*lists))
        answer = tuple(texts[0] for texts in lists)
        ranked = sorted(every, key=lambda way: -sum(text.score for text in way))
        expected = [answer, *(way for way in ranked if way != answer)]
        for count in (1, 2, 5, 100):
            assert combine(lists, count) == expected[:count]


def test_an_utterance_without_windows_has_its_empty_answer() -> None:
    assert combine([], 4) == [()]
