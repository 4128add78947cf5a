"""What a transcript's own words say against it: words that the model is unsure of, and words that repeat.

A model that does not know the language of a recording rarely fails: it writes fluent words of its own
language, with little confidence, or the same ones again and again. How the limits were found is in
docs/accuracy.md.
"""

from collections.abc import Iterator, Sequence

from spool.catalogue.entries import load_catalogue
from spool.domain.archive.review import review_passages
from spool.domain.spacing import join_words
from spool.domain.transcript import Transcript, Word
from spool.wer import normal_words

UNSURE = 0.4
"""A passage of words with a mean confidence below 0.6 is one that the model did not understand."""
LEAST_WORDS = 5
SHARE = 0.1
"""Of a recording's words, in such passages, so that the recording is flagged."""
LOOP_TIMES, LOOP_WORDS = 3, 9
"""Words that repeat: so often in a row, and so many of them in all."""
LONG_LOOP = 10
"""As many words in the same order, twice in a row, are a loop too."""


def warn_of_doubts(transcript: Transcript, languages: Sequence[str]) -> tuple[str, ...]:
    """At most one warning, for people. languages: those of the model, none if nobody knows."""
    doubts = (*_unsure(transcript, languages), *_repeated(transcript.words))
    if not doubts:
        return ()
    model = next(_with_more_languages(transcript.model.name), "MODEL") if len(languages) == 1 else "MODEL"
    again = f": spool rerun {transcript.job} --model {model}" if transcript.job else "."
    return (f"{' '.join(doubts)} Listen to it, or transcribe it with another model{again}",)


def known_languages(model: str) -> tuple[str, ...]:
    """What the catalogue says that a model knows; empty for models that it does not have."""
    catalogue = load_catalogue()
    return catalogue.find(model).languages if catalogue.has(model) else ()


def _with_more_languages(model: str) -> Iterator[str]:
    """Models of the catalogue that know more than one language, in its order."""
    return (
        entry.name
        for entry in load_catalogue().models
        if len(entry.languages) > 1 and entry.name != model and "transcribe" in entry.tasks
    )


def _unsure(transcript: Transcript, languages: Sequence[str]) -> Iterator[str]:
    unsure = [
        passage
        for passage in review_passages(transcript)
        if passage.words >= LEAST_WORDS and passage.doubts.confidence > UNSURE
    ]
    words = sum(passage.words for passage in unsure)
    if not words or words < SHARE * len(transcript.words):
        return
    share = "most" if words > len(transcript.words) / 2 else f"{words / len(transcript.words):.0%}"
    other = (
        f"the language may not be the model's ({languages[0]})"
        if len(languages) == 1
        else "the language may be another one"
    )
    first = clock(unsure[0].start_seconds)
    yield (
        f"{transcript.model.name} is unsure of {share} of the words, first at {first}: "
        f"{other}, or the speech is hard to hear."
    )


def _repeated(words: Sequence[Word]) -> Iterator[str]:
    loops = list(_loops([" ".join(normal_words(word.text)) for word in words]))
    if not loops:
        return
    at, size, times = loops[0]
    text = join_words(word.text for word in words[at : at + min(size, LONG_LOOP)])
    more = f", and at {len(loops) - 1} more places" if len(loops) > 1 else ""
    yield (
        f"The same words repeat {times} times at {clock(words[at].start)}{more} (“{text}”), as models do "
        "over sound that they do not understand."
    )


def _loops(tokens: Sequence[str]) -> Iterator[tuple[int, int, int]]:
    """First word, length and number of each run of repetitions."""
    at = 0
    while at < len(tokens):
        for size in range(1, min(2 * LONG_LOOP, (len(tokens) - at) // 2) + 1):
            times = 1
            while tokens[at : at + size] == tokens[at + times * size : at + (times + 1) * size]:
                times += 1
            if times > 1 and (size >= LONG_LOOP or (times >= LOOP_TIMES and times * size >= LOOP_WORDS)):
                yield at, size, times
                at += times * size
                break
        else:
            at += 1


def clock(seconds: float) -> str:
    """A time as the page shows it: 3:20, 1:03:20."""
    minutes, rest = divmod(int(seconds), 60)
    return f"{minutes // 60}:{minutes % 60:02d}:{rest:02d}" if minutes >= 60 else f"{minutes}:{rest:02d}"
