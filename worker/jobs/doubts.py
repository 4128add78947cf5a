"""What speaks against a transcript: words that the model is unsure of, speech without words, and words that
repeat.

A model that does not know the language of a recording rarely fails: it writes fluent words of its own
language, with little confidence, or the same ones again and again, or none at all. How the limits were found
is in docs/accuracy.md.
"""

from collections.abc import Iterator, Sequence

from spool.catalogue.entries import load_catalogue
from spool.domain.archive.review import ReviewPassage, review_passages
from spool.domain.spacing import join_words
from spool.domain.transcript import SpeechSpan, Transcript, Word
from spool.wer import normal_words

UNSURE = 0.4
"""A passage of words with a mean confidence below 0.6 is one that the model did not understand."""
LEAST_WORDS = 5
SHARE = 0.1
"""Of a recording's words, in such passages, so that the recording is flagged; and of its speech, without
words."""
LOOP_TIMES, LOOP_WORDS = 3, 9
"""Words that repeat: so often in a row, and so many of them in all."""
LONG_LOOP = 10
"""As many words in the same order, twice in a row, are a loop too."""


def warn_of_doubts(transcript: Transcript, languages: Sequence[str]) -> tuple[str, ...]:
    """At most one warning, for people. languages: those of the model, none if nobody knows."""
    doubts = (*_misheard(transcript, languages), *_repeated(transcript.words))
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


def _misheard(transcript: Transcript, languages: Sequence[str]) -> Iterator[str]:
    passages = review_passages(transcript)
    found = [*_unsure(passages, len(transcript.words)), *_unwritten(passages, transcript.speech)]
    if not found:
        return
    other = (
        f"the language may not be the model's ({languages[0]})"
        if len(languages) == 1
        else "the language may be another one"
    )
    yield f"{transcript.model.name} {', and '.join(found)}: {other}, or the speech is hard to hear."


def _unsure(passages: Sequence[ReviewPassage], of_words: int) -> Iterator[str]:
    unsure = [
        passage for passage in passages if passage.words >= LEAST_WORDS and passage.doubts.confidence > UNSURE
    ]
    words = sum(passage.words for passage in unsure)
    if words and words >= SHARE * of_words:
        share = "most" if words > of_words / 2 else f"{words / of_words:.0%}"
        yield f"is unsure of {share} of the words, first at {clock(unsure[0].start_seconds)}"


def _unwritten(passages: Sequence[ReviewPassage], spans: Sequence[SpeechSpan]) -> Iterator[str]:
    silent = [passage for passage in passages if not passage.words]
    seconds = sum(passage.end_seconds - passage.start_seconds for passage in silent)
    if silent and seconds >= SHARE * sum(span.end - span.start for span in spans if span.label == "speech"):
        length = f"{seconds:.0f} s" if seconds < 120 else f"{seconds / 60:.0f} min"
        yield f"wrote nothing for {length} of speech, first at {clock(silent[0].start_seconds)}"


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
