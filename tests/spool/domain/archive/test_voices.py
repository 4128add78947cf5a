from array import array
from math import sqrt

import pytest

from spool.domain import MOST_VOICE_MATCHES, KnownVoice, cosine, matches_of, mean_print


def print_of(*values: float) -> bytes:
    length = sqrt(sum(value * value for value in values))
    return array("f", [value / length for value in values]).tobytes()


def test_a_mean_has_length_one() -> None:
    mean = mean_print([print_of(1, 0), print_of(0, 1)])
    assert cosine(mean, mean) == pytest.approx(1, abs=1e-6)
    assert cosine(mean, print_of(1, 0)) == pytest.approx(sqrt(0.5), abs=1e-6)


def test_like_voices_are_named_the_likest_first() -> None:
    known = {
        KnownVoice("voi_1", "default", "Ada", 2): print_of(1.0, 0.2),
        KnownVoice("voi_2", "default", "Bo", 1): print_of(1.0, 0.0),
        KnownVoice("voi_3", "default", "Cy", 1): print_of(0.0, 1.0),
    }
    matches = matches_of({"speaker_0": print_of(1, 0), "speaker_1": print_of(-1, 0)}, known)
    assert [(each.voice.name, each.similarity) for each in matches["speaker_0"]] == [
        ("Bo", 1.0),
        ("Ada", 0.981),
    ]
    assert matches["speaker_1"] == []


def test_no_more_than_a_few_are_named() -> None:
    known = {KnownVoice(f"voi_{n}", "default", f"{n}", 1): print_of(1, n / 100) for n in range(9)}
    assert len(matches_of({"speaker_0": print_of(1, 0)}, known)["speaker_0"]) == MOST_VOICE_MATCHES


def test_prints_of_unlike_sizes_are_not_compared() -> None:
    with pytest.raises(ValueError, match="different sizes"):
        cosine(print_of(1), print_of(1, 2))
