"""What else was heard, as readings of a transcript's words."""

import random

from ops.testbed.running_api import transcript_of
from spool.domain import (
    MOST_READINGS_OF_PASSAGE,
    Alternative,
    AlternativeReading,
    ChunkNbest,
    NbestText,
    Passage,
    Spoken,
    Transcript,
    matches_query,
    pairs_of,
    parse_query,
    passages_of,
    readings_of,
)


def heard(words: str, *chunks: tuple[float, float, tuple[str, ...]]) -> Transcript:
    nbest = tuple(
        ChunkNbest(start=start, end=end, hypotheses=tuple(NbestText(text=text, score=-1.0) for text in texts))
        for start, end, texts in chunks
    )
    return transcript_of("job_1", tuple(words.split())).model_copy(update={"nbest": nbest})


def test_a_reading_is_where_a_hypothesis_differs() -> None:
    texts = ("a b c d e f", "a b x y d e f", "a b c d z e f", "a c d e f", "A b, c d e f")
    assert readings_of(heard("a b c d e f", (0.0, 3.0, texts))) == [
        AlternativeReading(2, 2, "x y", None),
        AlternativeReading(3, 3, "d z", None),
    ]


def test_the_words_of_the_next_chunk_are_left_out() -> None:
    """A hypothesis reaches over its chunk's edges; a word that is another one there counts."""
    first, second = ("a b c", "a b c d"), ("d e f", "c d e f", "x e f")
    assert readings_of(heard("a b c d e f", (0.0, 1.5, first), (1.5, 3.0, second))) == [
        AlternativeReading(3, 3, "x", None)
    ]


def test_there_are_few_readings_in_a_passage_and_the_likeliest_stay() -> None:
    transcript = transcript_of("job_1", tuple(f"w{at}" for at in range(60)))
    words = tuple(
        word.model_copy(
            update={
                "alternatives": tuple(
                    Alternative(text=f"a{at}x{rank}", confidence=0.5 / (1 + rank)) for rank in range(20)
                )
            }
        )
        for at, word in enumerate(transcript.words)
    )
    first, last = passages_of(transcript.model_copy(update={"words": words}))
    assert len(first.readings) == MOST_READINGS_OF_PASSAGE
    assert {at: sum(each.first == at for each in first.readings) for at in range(50)} == dict.fromkeys(
        range(50), 4
    )
    assert [each.text for each in first.readings[:2]] == ["a0x0", "a0x1"]
    assert last.readings[0].text == "a40x0"
    assert len(last.readings) == 5 * 20


def test_a_phrase_that_a_reading_makes_has_its_pairs_in_the_index() -> None:
    chance = random.Random(19)
    found = 0
    for _ in range(300):
        said = [chance.choice(("a", "b", "c", "Ha-ha", "—")) for _ in range(8)]
        readings = []
        for _ in range(3):
            first = chance.randrange(8)
            last = min(7, first + chance.randrange(3))
            heard = " ".join(chance.choice("abd") for _ in range(chance.randrange(1, 4)))
            readings.append(AlternativeReading(first, last, heard, 0.2))
        words = [Spoken(word, 0.0, 0.0, 0.9) for word in said]
        passage = Passage.of(0, None, 8, words, tuple(readings))
        phrase = [chance.choice(("a", "b", "c", "d", "ha")) for _ in range(chance.randrange(2, 4))]
        if matches_query(parse_query(f'"{" ".join(phrase)}"'), passage, alternatives=True):
            found += 1
            assert set(pairs_of(phrase)) <= set(passage.pairs)
    assert found > 30
