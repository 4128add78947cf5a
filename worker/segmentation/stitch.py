"""Joins the words of a recording's chunks into one list, by their times.

At a cut in a pause the words of both sides are taken as they are. Where both sides overlap across the cut
`c`:

1. Words of the two sides within the overlap are paired in order: equal words (letters and digits,
   case-folded) whose middles lie within 0.5 s, other words within 0.25 s. Closer pairs count more, and equal
   words most.
2. A pair is one word decoded twice. It is kept once, from the side whose core contains the mean of the two
   middles, so a word whose two times straddle the cut is neither lost nor doubled.
3. An unpaired word is kept if its middle lies on its own side of `c`, or up to 0.5 s beyond it unless a word
   kept from the other side covers half of it or is the same word.

Each channel is stitched by itself.
"""

from collections.abc import Mapping, Sequence
from itertools import pairwise

from spool.domain.recognition import DecodedChunk
from spool.domain.transcript import Word
from worker.audio.resample import SAMPLE_RATE

SAME_SECONDS = 0.5
OTHER_SECONDS = 0.25
_OTHER_WEIGHT = 0.3
_FRAME_SECONDS = 0.08


def stitch(chunks: Sequence[DecodedChunk]) -> list[Word]:
    """All words once, ordered by channel and then by start; within a channel no word begins before its
    predecessor.

    Chunks may come in any order and some may be missing: next to a missing chunk, words beyond the core are
    kept.
    """
    words: list[Word] = []
    for channel in sorted({chunk.span.channel for chunk in chunks}):
        own = sorted((c for c in chunks if c.span.channel == channel), key=lambda c: c.span.core_start)
        words += clip_ends(sorted(_one_channel(own), key=lambda word: (word.start, word.end)), channel)
    return words


def _one_channel(chunks: Sequence[DecodedChunk]) -> list[Word]:
    lists = [list(chunk.heard.words) for chunk in chunks]
    for index, (left, right) in enumerate(pairwise(chunk.span for chunk in chunks)):
        seam = left.core_end
        if right.core_start == seam and (left.end > seam or right.start < seam):
            span = (right.start / SAMPLE_RATE, left.end / SAMPLE_RATE)
            lists[index], lists[index + 1] = _decide(lists[index], lists[index + 1], seam / SAMPLE_RATE, span)
    return [word for words in lists for word in words]


def _decide(
    left: list[Word], right: list[Word], cut: float, span: tuple[float, float]
) -> tuple[list[Word], list[Word]]:
    """The words that each side keeps at an overlapped cut."""
    # Half a second beyond the overlap, since the other side may place a word at its edge just outside.
    first, last = span[0] - SAME_SECONDS, span[1] + SAME_SECONDS
    near_left = [i for i, word in enumerate(left) if middle_of(word) >= first]
    near_right = [i for i, word in enumerate(right) if middle_of(word) <= last]
    wins_left: dict[int, bool] = {}
    wins_right: dict[int, bool] = {}
    for a, b in pair_words([left[i] for i in near_left], [right[i] for i in near_right]):
        i, j = near_left[a], near_right[b]
        wins_left[i] = middle_of(left[i]) + middle_of(right[j]) < 2 * cut
        wins_right[j] = not wins_left[i]
    sure_left, doubtful_left = _sift(left, wins_left, [middle_of(word) - cut for word in left])
    sure_right, doubtful_right = _sift(right, wins_right, [cut - middle_of(word) for word in right])
    kept_left = sure_left + [word for word in doubtful_left if _alone(word, sure_right)]
    kept_right = sure_right + [word for word in doubtful_right if _alone(word, sure_left)]
    return sorted(kept_left, key=middle_of), sorted(kept_right, key=middle_of)


def _sift(
    words: Sequence[Word], wins: Mapping[int, bool], beyond: Sequence[float]
) -> tuple[list[Word], list[Word]]:
    """Words that are certainly kept, and unpaired ones up to `SAME_SECONDS` beyond the cut (`beyond`, s)."""
    sure, doubtful = [], []
    for index, word in enumerate(words):
        if wins.get(index, beyond[index] <= 0):
            sure.append(word)
        elif index not in wins and beyond[index] <= SAME_SECONDS:
            doubtful.append(word)
    return sure, doubtful


def _alone(word: Word, others: Sequence[Word]) -> bool:
    """Whether no word kept from the other side covers half of a doubtful word or equals it."""
    half = max((word.end - word.start) / 2, _FRAME_SECONDS / 2)
    return not any(
        min(word.end, other.end) - max(word.start, other.start) >= half
        or (_key(word) == _key(other) and abs(middle_of(word) - middle_of(other)) <= SAME_SECONDS)
        for other in others
    )


def pair_words(left: Sequence[Word], right: Sequence[Word]) -> list[tuple[int, int]]:
    """The pairs of indices, ascending on both sides, with the greatest total weight (dynamic programming)."""
    rows, columns = len(left), len(right)
    best = [[0.0] * (columns + 1) for _ in range(rows + 1)]
    for i in range(rows - 1, -1, -1):
        for j in range(columns - 1, -1, -1):
            weight = _weight(left[i], right[j])
            take = weight + best[i + 1][j + 1] if weight > 0 else 0.0
            best[i][j] = max(take, best[i + 1][j], best[i][j + 1])
    pairs: list[tuple[int, int]] = []
    i = j = 0
    while i < rows and j < columns:
        weight = _weight(left[i], right[j])
        if weight > 0 and best[i][j] == weight + best[i + 1][j + 1]:
            pairs.append((i, j))
            i, j = i + 1, j + 1
        elif best[i][j] == best[i + 1][j]:
            i += 1
        else:
            j += 1
    return pairs


def _weight(left: Word, right: Word) -> float:
    apart = abs(middle_of(left) - middle_of(right))
    if _key(left) == _key(right):
        return SAME_SECONDS - apart
    return _OTHER_WEIGHT * (OTHER_SECONDS - apart)


def _key(word: Word) -> str:
    letters = "".join(letter for letter in word.text.casefold() if letter.isalnum())
    return letters or word.text


def middle_of(word: Word) -> float:
    """When half of the word is said, in seconds."""
    return (word.start + word.end) / 2


def clip_ends(ordered: Sequence[Word], channel: int) -> list[Word]:
    """Words in the order of their starts, set to `channel`, each clipped to the start of the next one."""
    out: list[Word] = []
    for index, word in enumerate(ordered):
        end = max(word.start, word.end)
        if index + 1 < len(ordered):
            end = min(end, ordered[index + 1].start)
        out.append(word.model_copy(update={"end": end, "channel": channel}))
    return out
