"""Which words of a transcript are fillers, doubled words and false starts, by lists and rules.

Pure. Only what can be nothing else is listed: "like" and "you know" are not, and "very very", "had had" and
"two two" are not doubled by mistake. No word is removed from the record: it is marked, or marked as left out.
"""

import re
from collections.abc import Iterator, Sequence
from itertools import pairwise

from spool.domain.archive.disfluencies import DISFLUENCIES, VERBATIM_LANGUAGES, LanguageLists
from spool.domain.archive.edits import rebuild_words
from spool.domain.transcript import Disfluency, Transcript, Verbatim, Word
from spool.wer import normal_words

_PAUSE_SECONDS = 2.0
"""Words further apart are neither doubled nor begun anew."""
_SENTENCE_ENDS = (".", "?", "!", "…", ":", ";")
_CUT = re.compile(r"(\w+)-")


def mark_disfluencies(transcript: Transcript, how: Verbatim, known: Sequence[str] = ()) -> Transcript:
    """The transcript with these words marked anew, as `how` says; words that a person wrote are left alone.

    known: the languages of its model. Where the language of a passage is unknown or has no list, nothing is
    marked, and a warning says so.
    """
    marks: dict[int, Disfluency] = {}
    unlisted: list[str] = []
    if how != "keep":
        groups: dict[tuple[str, int], list[int]] = {}
        for at, (word, code) in enumerate(zip(transcript.words, _codes(transcript, known), strict=True)):
            groups.setdefault((code, word.channel), []).append(at)
        unlisted = sorted({code for code, _ in groups} - DISFLUENCIES.keys())
        for (code, _), places in groups.items():
            if code in DISFLUENCIES:
                own = [transcript.words[at] for at in places]
                marks |= {places[at]: mark for at, mark in _find(own, DISFLUENCIES[code])}
    words = [_mark(word, marks.get(at), omit=how == "omit") for at, word in enumerate(transcript.words)]
    warnings = transcript.warnings
    if unlisted:
        where = ", ".join(code or "unknown" for code in unlisted)
        lists = ", ".join(VERBATIM_LANGUAGES)
        warnings += (
            f"verbatim: nothing is marked where the language is {where}; there are lists for {lists}.",
        )
    options = {**transcript.options, "verbatim": how}
    marked = transcript.model_copy(update={"options": options, "warnings": warnings})
    return marked if words == [*transcript.words] else rebuild_words(marked, words, range(len(words)))


def leave_out(transcript: Transcript) -> Transcript:
    """The transcript without the words that are left out of every text."""
    homes = [at for at, word in enumerate(transcript.words) if not word.omitted]
    if len(homes) == len(transcript.words):
        return transcript
    return rebuild_words(transcript, [transcript.words[at] for at in homes], homes)


def _mark(word: Word, mark: Disfluency | None, *, omit: bool) -> Word:
    update = {"disfluency": mark, "omitted": omit and mark is not None}
    return word if (word.disfluency, word.omitted) == (*update.values(),) else word.model_copy(update=update)


def _codes(transcript: Transcript, known: Sequence[str]) -> Iterator[str]:
    """The language that each word is written in; empty if nobody can tell."""
    options = transcript.options
    if options.get("task") == "translate":
        yield from [str(options.get("translate_to") or "en")] * len(transcript.words)
        return
    asked = options.get("language")
    general = (
        asked if isinstance(asked, str) else transcript.language or (known[0] if len(known) == 1 else "")
    )
    spans = transcript.languages
    at = 0
    for word in transcript.words:
        middle = (word.start + word.end) / 2
        for _ in spans:
            if spans[at].channel == word.channel and spans[at].start <= middle < spans[at].end:
                break
            at = (at + 1) % len(spans)
        else:
            yield general
            continue
        yield spans[at].read_as or spans[at].language


def _find(words: Sequence[Word], language: LanguageLists) -> Iterator[tuple[int, Disfluency]]:
    keys = [" ".join(normal_words(word.text)) for word in words]
    said = []
    for at, (word, key) in enumerate(zip(words, keys, strict=True)):
        abbreviated = len(key) > 1 and word.text.isupper()
        if language.fillers.fullmatch(key) and not abbreviated and not word.corrected:
            yield at, "filler"
        else:
            said.append(at)
    for at, after in pairwise(said):
        word = words[at]
        ends = word.text.endswith(_SENTENCE_ENDS) or words[after].start - word.end > _PAUSE_SECONDS
        if ends or word.corrected:
            continue
        cut = _CUT.fullmatch(word.text)
        if cut is not None and keys[after].startswith(cut[1].lower()):
            yield at, "false_start"
        elif keys[at] == keys[after] and keys[at] in language.single:
            yield at, "repetition"
