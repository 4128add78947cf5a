"""Corrections over a transcript that itself never changes: events, which of them stand, and their result.

Pure. An edit replaces the words of a range by a text, or gives them another speaker; ranges count the words
of the transcript as it was recognised, so they mean the same after every other edit. Words that stay keep
their times; new ones share the time of those they replace.
"""

from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from difflib import SequenceMatcher
from typing import Protocol

from spool.domain.columns import Id, Label, Name
from spool.domain.spacing import join_words
from spool.domain.transcript import (
    Correction,
    Segment,
    Speaker,
    Transcript,
    Word,
    recount_speakers,
    text_of_words,
)
from spool.errors import InvalidRequest
from spool.wer import normal_words

MOST_WORDS = 2000
_WRITTEN = {"corrected": True, "disfluency": None, "omitted": False}
"""What becomes of a word whose text a person wrote."""


@dataclass(frozen=True)
class Edit:
    """One event: the words from `first_word` to `last_word` have another text or speaker."""

    revision: int
    """1, 2, 3 … of the job, without a gap."""
    first_word: int
    last_word: int
    text: str | None
    """The new words; None if only the speaker changes."""
    speaker: Label | None
    author: Name
    created_at: datetime
    undoes: int | None = None
    """The revision that this one undoes; it has no other effect."""
    from_job: Id | None = None
    """The job of the correction that this one was spread from."""
    from_revision: int | None = None

    def touches(self, first: int, last: int) -> bool:
        """Whether the two ranges share a word."""
        return self.first_word <= last and first <= self.last_word

    def covers(self, other: "Edit") -> bool:
        """Whether its range has all words of the other's."""
        return self.first_word <= other.first_word and other.last_word <= self.last_word

    def shift(self, words: int) -> "Edit":
        """The same edit where its first word has another number: so many more."""
        return replace(self, first_word=self.first_word + words, last_word=self.last_word + words)


class Recognised(Protocol):
    """A transcript as it was recognised, or what can be read of it."""

    @property
    def words(self) -> Sequence[Word]: ...
    @property
    def speakers(self) -> Sequence[Speaker]: ...


def find_effective_edits(edits: Iterable[Edit]) -> list[Edit]:
    """The edits that are not undone, without the undos, by revision."""
    events = sorted(edits, key=lambda edit: edit.revision)
    undone = {edit.undoes for edit in events}
    return [edit for edit in events if edit.undoes is None and edit.revision not in undone]


def find_standing_edits(edits: Iterable[Edit]) -> list[Edit]:
    """The edits neither undone nor replaced by a later edit of the same or a wider range, by range."""
    stands: list[Edit] = []
    # The ranges of later edits that no other of them covers: begins and ends both rise.
    firsts: list[int] = []
    lasts: list[int] = []
    for edit in reversed(find_effective_edits(edits)):
        at = bisect_right(firsts, edit.first_word)
        if at and edit.last_word <= lasts[at - 1]:
            continue
        stands.append(edit)
        begin, end = bisect_left(firsts, edit.first_word), bisect_right(lasts, edit.last_word)
        firsts[begin : max(begin, end)] = [edit.first_word]
        lasts[begin : max(begin, end)] = [edit.last_word]
    stands.reverse()
    return sorted(stands, key=lambda edit: edit.first_word)


def recognised_number(stands: Iterable[Edit], at: int) -> int | None:
    """Which word of the recognised transcript the word `at` of the corrected one is, by the standing edits in
    order; None for what an edit wrote."""
    grown = 0
    for edit in stands:
        size = edit.last_word - edit.first_word + 1
        now = size if edit.text is None else len(edit.text.split())
        first = edit.first_word + grown
        if at < first:
            break
        if edit.text is not None and at < first + now:
            return None
        grown += now - size
    return at - grown


def text_in(transcript: Recognised, edits: Iterable[Edit], first: int, last: int) -> str | None:
    """The text of the words `first` to `last` as corrected; None if it is as recognised. The standing edits
    of them have no other words."""
    stands = [each for each in find_standing_edits(edits) if each.touches(first, last)]
    if all(each.text is None for each in stands):
        return None
    pieces: list[str] = []
    at = first
    for edit in stands:
        pieces += [word.text for word in transcript.words[at : edit.first_word]]
        heard = [word.text for word in transcript.words[edit.first_word : edit.last_word + 1]]
        pieces += heard if edit.text is None else edit.text.split()
        at = edit.last_word + 1
    return " ".join([*pieces, *(word.text for word in transcript.words[at : last + 1])])


def check_edit(transcript: Recognised, edits: Iterable[Edit], edit: Edit) -> None:
    """Raise InvalidRequest if the edit does not fit the transcript and the edits before it."""
    words = transcript.words
    if not 0 <= edit.first_word <= edit.last_word < len(words):
        raise InvalidRequest(
            f"There are no words {edit.first_word} to {edit.last_word}: the transcript has {len(words)}, "
            "from 0 on."
        )
    if len({words[at].channel for at in (edit.first_word, edit.last_word)}) > 1:
        raise InvalidRequest("The words belong to two channels; edit each separately.")
    if max(edit.last_word - edit.first_word + 1, len((edit.text or "").split())) > MOST_WORDS:
        raise InvalidRequest(f"An edit may cover at most {MOST_WORDS} words, before and after it.")
    if edit.text is None and edit.speaker is None:
        raise InvalidRequest("An edit needs a text, a speaker, or both.")
    labels = [speaker.label for speaker in transcript.speakers]
    if edit.speaker is not None and edit.speaker not in labels:
        raise InvalidRequest(
            f"There is no speaker {edit.speaker}; the speakers are: {', '.join(labels) or 'none'}."
        )
    for other in find_standing_edits(edits):
        if other.touches(edit.first_word, edit.last_word) and not edit.covers(other):
            raise InvalidRequest(
                f"Revision {other.revision} edited words {other.first_word} to {other.last_word}, which "
                "include these words: edit all of them, or undo it first."
            )


def apply_edits(transcript: Transcript, edits: Iterable[Edit]) -> Transcript:
    """The transcript with its standing edits applied, and the replaced words under `corrections`.

    A word keeps the speaker that somebody gave it until somebody gives it another, whatever becomes of its
    text.
    """
    live = find_effective_edits(edits)
    if not live:
        return transcript
    words, homes, corrections = _correct(transcript.words, live)
    return rebuild_words(transcript, words, homes).model_copy(update={"corrections": tuple(corrections)})


def correct_words(words: Sequence[Word], edits: Iterable[Edit]) -> list[Word]:
    """The words with their standing edits applied."""
    return _correct(words, find_effective_edits(edits))[0]


def _correct(words: Sequence[Word], live: Sequence[Edit]) -> tuple[list[Word], list[int], list[Correction]]:
    """The words that there are now, the recognised word that each came from or stands beside, and what was
    replaced."""
    recognised = _with_speakers(words, live)
    now: list[Word] = []
    homes: list[int] = []
    corrections: list[Correction] = []
    at = 0
    for edit in find_standing_edits(live):
        now += recognised[at : edit.first_word]
        homes += range(at, edit.first_word)
        heard = recognised[edit.first_word : edit.last_word + 1]
        place = len(now)
        for word, home in _apply_text(heard, edit.text):
            now.append(word)
            homes.append(edit.first_word + home)
        corrections.append(_correction(heard, edit, place, len(now) - place))
        at = edit.last_word + 1
    now += recognised[at:]
    homes += range(at, len(words))
    return now, homes, corrections


def rewrite_segments(transcript: Transcript, texts: Sequence[str]) -> Transcript:
    """The transcript with another text for each segment, as a rendering rather than a correction. New words
    have the lowest confidence of those they replace."""
    words: list[Word] = []
    homes: list[int] = []
    for segment, text in sorted(
        zip(transcript.segments, texts, strict=True), key=lambda pair: pair[0].first_word
    ):
        heard = transcript.words[segment.first_word : segment.last_word + 1]
        least = min((word.confidence for word in heard), default=1.0)
        for word, home in _apply_text(heard, text):
            plain = {"corrected": False, "confidence": least} if word.corrected else {}
            words.append(word.model_copy(update=plain) if plain else word)
            homes.append(segment.first_word + home)
    return rebuild_words(transcript, words, homes)


def rebuild_words(transcript: Transcript, words: Sequence[Word], homes: Sequence[int]) -> Transcript:
    """The transcript with other words; `homes`: the old word that each came from or stands beside."""
    return transcript.model_copy(
        update={
            "words": tuple(words),
            "segments": tuple(_segments(transcript.segments, words, homes)),
            "text": text_of_words(words),
            "speakers": recount_speakers(transcript.speakers, words),
        }
    )


def _correction(heard: Sequence[Word], edit: Edit, place: int, count: int) -> Correction:
    return Correction(
        revision=edit.revision,
        word=place,
        words=count,
        first_word=edit.first_word,
        last_word=edit.last_word,
        original=join_words(word.text for word in heard),
        text=edit.text,
        speaker=edit.speaker,
        author=edit.author,
        at=edit.created_at.isoformat(timespec="seconds"),
    )


def _with_speakers(words: Sequence[Word], live: Sequence[Edit]) -> list[Word]:
    """The recognised words, each with the speaker that the last edit of its speaker gave it."""
    given: dict[int, Label] = {}
    for edit in live:
        if edit.speaker is not None:
            given |= dict.fromkeys(range(edit.first_word, edit.last_word + 1), edit.speaker)
    return [
        word.model_copy(update={"speaker": given[at]}) if at in given else word
        for at, word in enumerate(words)
    ]


def _apply_text(heard: Sequence[Word], text: str | None) -> Iterator[tuple[Word, int]]:
    """The words that a range has now, each with the original word that it came from or stands beside."""
    if text is None:
        yield from ((word, at) for at, word in enumerate(heard))
        return
    tokens = text.split()
    before, after = [_key(word.text) for word in heard], [_key(token) for token in tokens]
    for kind, i, j, m, n in _blocks(before, after):
        if kind == "equal":
            for at, token in zip(range(i, j), tokens[m:n], strict=True):
                same = token == heard[at].text
                yield (
                    (heard[at] if same else heard[at].model_copy(update={"text": token, **_WRITTEN})),
                    at,
                )
        elif m < n:
            yield from _share_time(heard, i, j, tokens[m:n])


def _blocks(before: Sequence[str], after: Sequence[str]) -> list[tuple[str, int, int, int, int]]:
    """Equal and replaced blocks; an insertion includes the word before it (else after it), whose time it
    shares."""
    blocks: list[tuple[str, int, int, int, int]] = []
    for kind, i, j, m, n in SequenceMatcher(None, before, after, autojunk=False).get_opcodes():
        if kind == "insert" and blocks and blocks[-1][0] == "equal":
            _, a, b, c, d = blocks.pop()
            if b - a > 1:
                blocks.append(("equal", a, b - 1, c, d - 1))
            blocks.append(("replace", b - 1, b, d - 1, n))
        elif kind == "insert" and blocks:
            _, a, b, c, _ = blocks.pop()
            blocks.append(("replace", a, b, c, n))
        elif kind == "equal" and blocks and blocks[-1][1] == blocks[-1][2]:  # an insertion at the beginning
            _, _, _, c, _ = blocks.pop()
            blocks.append(("replace", i, i + 1, c, m + 1))
            if j - i > 1:
                blocks.append(("equal", i + 1, j, m + 1, n))
        else:
            blocks.append((kind, i, j, m, n))
    return blocks


def _share_time(heard: Sequence[Word], i: int, j: int, tokens: Sequence[str]) -> Iterator[tuple[Word, int]]:
    """`tokens` over the time of the words `i` to `j`, each as long as its share of the characters."""
    start, end = heard[i].start, max(word.end for word in heard[i:j])
    total = sum(map(len, tokens))
    done = 0
    for at, token in enumerate(tokens):
        home = i + at * (j - i) // len(tokens)
        known = next((word for word in heard[i:j] if word.text == token), None)
        begun, done = done, done + len(token)
        yield (
            heard[home].model_copy(
                update={
                    "text": token,
                    "start": round(start + (end - start) * begun / total, 3),
                    "end": round(start + (end - start) * done / total, 3),
                    "confidence": 1.0 if known is None else known.confidence,
                    "alternatives": (),
                    "doubtful": False,
                    "evidence": None,
                    **_WRITTEN,
                    "corrected": known is None,
                }
            ),
            home,
        )


def _segments(segments: Sequence[Segment], words: Sequence[Word], homes: Sequence[int]) -> Iterator[Segment]:
    """The segments with the words made from theirs; a segment without words is dropped."""
    at = 0
    for segment in sorted(segments, key=lambda each: each.first_word):
        first = at
        while at < len(homes) and homes[at] <= segment.last_word:
            at += 1
        own = words[first:at]
        if own:
            yield segment.model_copy(
                update={
                    "text": text_of_words(own),
                    "first_word": first,
                    "last_word": at - 1,
                    "speaker": own[0].speaker,
                }
            )


def _key(token: str) -> str:
    return " ".join(normal_words(token)) or token
