"""How words compare with those of float32, and what is stored of it."""

import pytest

from spool.domain.quality import Quality, compare_words, quality_of

SPOKEN = {"a": "one two three", "b": "four five", "c": "six"}


def test_a_recording_is_worse_only_with_more_errors_than_the_reference() -> None:
    # Given one recording as bad as in float32 but otherwise, one that is better, and one that is worse
    reference = {"a": "one two tree", "b": "for five", "c": "six"}
    heard = {"a": "one too three", "b": "four five", "c": ""}
    # When they are compared
    no_worse, errors, known, worse = compare_words(SPOKEN, heard, reference)
    # Then the worse one alone counts, by name, and both have their word errors
    assert (no_worse, worse) == (2, ["c"])
    assert (errors.edits, errors.words) == (2, 6)
    assert (known.edits, known.words) == (2, 6)


def test_what_was_not_heard_counts_as_silence() -> None:
    no_worse, errors, _, worse = compare_words(SPOKEN, {}, SPOKEN)
    assert (no_worse, errors.edits, worse) == (0, 6, ["a", "b", "c"])


def test_a_measurement_is_read_as_it_was_written() -> None:
    quality = Quality(
        21, 20, 0.05, 0.048, 12.5, "float16", "Device(gpu, 0)", "2026-11-22T19:00:00+00:00", 0.4
    )
    assert quality_of(quality.document()) == quality
    assert quality.qoi == pytest.approx(20 / 21)


@pytest.mark.parametrize("change", [{"recordings": 0, "no_worse": 0}, {"no_worse": 22}, {"no_worse": -1}])
def test_a_share_of_nothing_is_refused(change: dict[str, int]) -> None:
    document = Quality(21, 21, 0.0, 0.0, 1.0, "float32", "cpu", "2026-11-22T19:00:00+00:00").document()
    with pytest.raises(ValueError, match="share of no recordings"):
        quality_of(document | change)
