"""How words compare with those of float32."""

from worker.diagnostics import compare_words

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
