"""The measures of words and speakers, by hand."""

from ops.accuracy.diarization.speaker_words import aligned, concatenated_word_errors, word_diarization_error

SAID = [("keep", "ada"), ("the", "ada"), ("light", "bo"), ("on", "bo")]


def test_labels_do_not_matter_and_a_wrong_speaker_does() -> None:
    renamed = [(word, {"ada": 7, "bo": 3}[who]) for word, who in SAID]
    assert word_diarization_error(SAID, renamed) == (0, 4)
    assert concatenated_word_errors(SAID, renamed).edits == 0
    moved = [("keep", 0), ("the", 1), ("light", 1), ("on", 1)]
    assert word_diarization_error(SAID, moved) == (1, 4)
    assert concatenated_word_errors(SAID, moved).edits == 2  # missing with one, too many with the other


def test_substitutions_count_and_insertions_do_not() -> None:
    heard = [("uh", 1), ("keep", 0), ("a", 1), ("light", 1)]
    assert aligned([word for word, _ in SAID], [word for word, _ in heard]) == [(0, 1), (1, 2), (2, 3)]
    assert word_diarization_error(SAID, heard) == (1, 3)


def test_one_speaker_too_few_or_nobody_at_all() -> None:
    one = [(word, 0) for word, _ in SAID]
    assert word_diarization_error(SAID, one) == (2, 4)
    assert concatenated_word_errors(SAID, one).edits == 4
    assert word_diarization_error(SAID, []) == (0, 0)
    assert concatenated_word_errors(SAID, []).rate == 1.0
