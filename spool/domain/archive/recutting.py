"""The passages that corrections change. Words far from them are neither read nor cut again.

A cut depends on the words since the one before it. So once a passage ends after the corrected words where one
ended before, all that follow are the same as before.
"""

from bisect import bisect_left, bisect_right
from collections.abc import Iterator, Sequence
from itertools import accumulate
from typing import NamedTuple

from spool.domain.archive.edits import Edit, correct_words, find_effective_edits, find_standing_edits
from spool.domain.archive.passages import FOLLOWING, MOST_WORDS, Passage, cut_passages
from spool.domain.archive.record import Record
from spool.domain.transcript import Word

_AHEAD = 4 * MOST_WORDS


class Cut(NamedTuple):
    """A passage as it is stored: how many of its words are its own, and the start of the first."""

    channel: int
    own: int
    start: float


class Recut(NamedTuple):
    """What replaces the passages of a channel from `first` until before `after`."""

    channel: int
    first: int
    after: int
    passages: Sequence[Passage]


class _Change(NamedTuple):
    """Words that are corrected: where they were in the transcript, and where they are now."""

    channel: int
    old_first: int
    old_after: int
    now_first: int
    now_after: int


def recut_passages(
    record: Record, before: Sequence[Edit], new: Sequence[Edit], stored: Sequence[Cut]
) -> list[Recut] | None:
    """What events that follow those `before` change of the stored passages, which are in order of their
    start. None if that cannot be told from some of the words."""
    old, now = _Shown(record, before), _Shown(record, [*before, *new])
    of_channels: dict[int, list[Cut]] = {}
    for cut in stored:
        of_channels.setdefault(cut.channel, []).append(cut)
    channels = sorted(of_channels)
    # What else was heard in a chunk is compared with all of the chunk's words.
    if record.around.nbest or not stored or sum(cut.own for cut in stored) != old.count:
        return None
    changes = [_change(record, old, now, *span) for span in _merge(new)]
    if not {change.channel for change in changes} <= of_channels.keys():
        return None
    if len(channels) > 1 and not record.is_in_order(channels):
        return None
    recuts: list[Recut] = []
    begin = 0
    for channel in channels:
        cuts = of_channels[channel]
        starts = list(accumulate((cut.own for cut in cuts), initial=begin))
        begin = starts[-1]
        own = [change for change in changes if change.channel == channel]
        found = _Channel(now, channel, cuts, starts, own).recut() if own else []
        if found is None:
            return None
        recuts += found
    return recuts


def count_shown(record: Record, edits: Sequence[Edit]) -> int:
    """How many words the transcript has with these edits."""
    return _Shown(record, edits).count


def _merge(edits: Sequence[Edit]) -> list[tuple[int, int]]:
    """The ranges of words of these edits, in order and apart."""
    merged: list[tuple[int, int]] = []
    for first, last in sorted((edit.first_word, edit.last_word) for edit in edits):
        if merged and first <= merged[-1][1]:
            first, last = merged[-1][0], max(merged.pop()[1], last)
        merged.append((first, last))
    return merged


def _change(record: Record, old: "_Shown", now: "_Shown", first: int, last: int) -> _Change:
    places = (shown.place(at) for shown in (old, now) for at in (first, last + 1))
    return _Change(record.words[first].channel, *places)


class _Shown:
    """A record's words with edits."""

    def __init__(self, record: Record, edits: Sequence[Edit]) -> None:
        self.around = record.around
        self._record = record
        self._live = find_effective_edits(edits)
        self._stands = find_standing_edits(self._live)
        sizes = [each.last_word - each.first_word + 1 for each in self._stands]
        self._sizes = [
            size if each.text is None else len(each.text.split())
            for each, size in zip(self._stands, sizes, strict=True)
        ]
        grown = (now - size for now, size in zip(self._sizes, sizes, strict=True))
        self._grown = list(accumulate(grown, initial=0))
        self._firsts = [each.first_word + more for each, more in zip(self._stands, self._grown, strict=False)]
        self.count = len(record.words) + self._grown[-1]

    def place(self, at: int) -> int:
        """Where the recognised word `at` is, if it is not within an edit: how many words are before it."""
        return at + self._grown[bisect_left(self._stands, at, key=lambda each: each.first_word)]

    def read(self, place: int, count: int, channel: int) -> tuple[list[Word], bool]:
        """At least `count` words of a channel from a place on, and whether they are all that are left of
        it."""
        first, passed = self._recognised(place)
        after = min(first + passed + count, len(self._record.words))
        if inside := [each for each in self._stands if each.first_word < after <= each.last_word]:
            after = inside[-1].last_word + 1
        words = self._record.words[first:after]
        own = next((at for at, word in enumerate(words) if word.channel != channel), len(words))
        edits = [each.shift(-first) for each in self._live if each.touches(first, first + own - 1)]
        ended = own < len(words) or after == len(self._record.words)
        return correct_words(words[:own], edits)[passed:], ended

    def _recognised(self, place: int) -> tuple[int, int]:
        """The recognised word that is at a place; of an edit its first one, and how many words of the edit
        are before the place."""
        at = bisect_right(self._firsts, place) - 1
        if at < 0:
            return place, 0
        passed = place - self._firsts[at]
        if passed < self._sizes[at]:
            return self._stands[at].first_word, passed
        return place - self._grown[at + 1], 0


class _Channel:
    """One channel's passages, as they are stored, and what changes of it. starts: the places of their first
    words, and the end of the last."""

    def __init__(
        self,
        shown: _Shown,
        channel: int,
        cuts: Sequence[Cut],
        starts: Sequence[int],
        changes: Sequence[_Change],
    ) -> None:
        self._shown = shown
        self._channel = channel
        self._cuts = cuts
        self._starts = starts
        self._changes = changes

    def recut(self) -> list[Recut] | None:
        """None if the stored passages are not those of these words."""
        recuts: list[Recut] = []
        at = row = 0
        while at < len(self._changes):
            change = self._changes[at]
            # The first passage that has a changed word, or one that follows it.
            first = max(row, bisect_right(self._starts, change.old_first - FOLLOWING, 1) - 1)
            found = self._recut_from(first, at)
            if found is None:
                return None
            recut, at = found
            recuts.append(recut)
            row = recut.after
        return recuts

    def _recut_from(self, first: int, at: int) -> tuple[Recut, int] | None:
        """The passages from `first` on, up to where they are as before the change `at` and those after it;
        and the next change."""
        change = self._changes[at]
        begin = self._starts[first] + change.now_first - change.old_first
        count = change.now_after - begin + _AHEAD
        while True:
            words, ended = self._shown.read(begin, count, self._channel)
            known = words and first < len(self._cuts) and self._starts[first] < change.old_first
            if known and words[0].start != self._cuts[first].start:
                return None
            place, passed, passages = begin, at, list[Passage]()
            for passage in self._cut(words, ended):
                passages.append(passage)
                place += passage.own
                while passed < len(self._changes) and self._changes[passed].now_after <= place:
                    passed += 1
                row = self._find_row(place, at, passed)
                if row is None:
                    continue
                changed = passed < len(self._changes) and self._changes[passed].now_first == place
                if row < len(self._cuts) and not changed:
                    following = passage.words[passage.own :]
                    if not following or following[0].start != self._cuts[row].start:
                        return None
                return Recut(self._channel, first, row, passages), passed
            if ended:
                return Recut(self._channel, first, len(self._cuts), passages), len(self._changes)
            count *= 2

    def _find_row(self, place: int, at: int, passed: int) -> int | None:
        """The stored passage that began at this place, if the changes from `at` to before `passed` are before
        it, and the others after it."""
        if passed == at or (passed < len(self._changes) and place > self._changes[passed].now_first):
            return None
        change = self._changes[passed - 1]
        before = place - change.now_after + change.old_after
        row = bisect_left(self._starts, before)
        return row if row < len(self._starts) and self._starts[row] == before else None

    def _cut(self, words: Sequence[Word], ended: bool) -> Iterator[Passage]:
        """The passages of these words; if more words follow, those of which that is known."""
        own = self._shown.around.model_copy(update={"words": tuple(words)})
        place = 0
        for passage in cut_passages(own):
            place += passage.own
            if not ended and place + FOLLOWING > len(words):
                return
            yield passage
