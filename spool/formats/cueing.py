"""Which words share a subtitle, how its lines break and when it is shown: by published rules, checked here.

Runs of one voice are divided where the sum of penalties is lowest, by dynamic programming over the gaps
between words (Knuth and Plass, "Breaking Paragraphs into Lines", 1981). Sentence ends, clauses and pauses are
good places; a place inside a phrase, or one that leaves too little time to read, is a bad one.
"""

import re
from bisect import bisect_right
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import accumulate, pairwise
from typing import Literal, get_args

from spool.domain.spacing import is_apart, join_words
from spool.domain.transcript import Segment, Transcript, Word
from spool.formats.text import text_language, voices_of

Preset = Literal["netflix", "bbc"]
PRESETS: tuple[Preset, ...] = get_args(Preset)
DEFAULT_PRESET: Preset = "netflix"
FLASH_MS = 100
"""How long a cue is shown at least, even if the next words are spoken at the same instant."""


@dataclass(frozen=True, slots=True)
class SubtitleRules:
    """What a subtitle may be. Times in milliseconds. A reading speed is in characters a second, or in words a
    minute."""

    line_characters: int
    lines: Literal[1, 2]
    shortest_ms: int
    longest_ms: int
    gap_ms: int
    """The least time between two subtitles."""
    closes_ms: int
    """A gap shorter than this is closed to `gap_ms`, since it would only flicker."""
    characters_per_second: float | None = None
    words_per_minute: float | None = None

    def reading_ms(self, text: str) -> int:
        """How long `text` takes to read."""
        return self.time_to_read(len(text), len(text.split()))

    def time_to_read(self, characters: int, words: int) -> int:
        """How long a text of this length takes to read."""
        by_characters = characters * 1000 / self.characters_per_second if self.characters_per_second else 0
        by_words = words * 60_000 / self.words_per_minute if self.words_per_minute else 0
        return round(max(by_characters, by_words))


RULES: dict[Preset, SubtitleRules] = {
    # Timed Text Style Guides, "General Requirements", "Subtitle Timing Guidelines" and "English (USA)": 5/6 s
    # to 7 s, gaps of two frames (at 24 a second) or of half a second and more, 20 characters a second.
    "netflix": SubtitleRules(42, 2, 833, 7000, 83, 500, characters_per_second=20),
    # Subtitle Guidelines 1.2, "Line length", "Timing" and "Gaps": 37 characters, 160 to 180 words a minute,
    # no gap below 1.5 s. They name no longest or shortest time; these are the usual ones.
    "bbc": SubtitleRules(37, 2, 1000, 7000, 0, 1500, words_per_minute=180),
}


@dataclass(frozen=True)
class Cue:
    """One subtitle: times in milliseconds, one or two lines of plain text."""

    start: int
    end: int
    lines: tuple[str, ...]
    channel: int
    voice: str = ""
    """The speaker's name; empty if there is only one voice."""
    speaker: str | None = None
    """The speaker's label."""


def cues_of(transcript: Transcript, preset: Preset = DEFAULT_PRESET) -> list[Cue]:
    """The subtitles of `transcript`, by start."""
    rules = RULES[preset]
    voice_of = voices_of(transcript)
    # The name must fit on the line too.
    longest = max((len(voice_of(segment)) for segment in transcript.segments), default=0)
    whole = rules.line_characters
    width = max(whole - (longest + len("<v >") if longest else 0), whole // 2)
    fitted = replace(rules, line_characters=width)
    clinging = _CLINGING.get(text_language(transcript), frozenset())
    timed: list[Cue] = []
    for channel in sorted({segment.channel for segment in transcript.segments}):
        segments = [segment for segment in transcript.segments if segment.channel == channel]
        cues = [
            replace(cue, voice=voice_of(run[0]), speaker=run[0].speaker)
            for run in _runs(segments)
            for cue in _divide(_cut_words(transcript, run, width), channel, fitted, clinging)
        ]
        timed += _time_cues(cues, rules)
    return sorted(timed, key=lambda cue: (cue.start, cue.channel))


def _runs(segments: Sequence[Segment]) -> Iterator[list[Segment]]:
    """Segments of one speaker without a long pause between them."""
    run: list[Segment] = []
    for segment in segments:
        if run and (segment.speaker != run[-1].speaker or segment.start - run[-1].end >= _LONG_PAUSE_S):
            yield run
            run = []
        run.append(segment)
    if run:
        yield run


def _cut_words(transcript: Transcript, run: Sequence[Segment], width: int) -> list[Word]:
    """Words without inner spaces, cut if they are wider than a line."""
    return [
        word
        if part == word.text and len(part) <= width
        else word.model_copy(update={"text": part[at : at + width]})
        for segment in run
        for word in transcript.words[segment.first_word : segment.last_word + 1]
        for part in word.text.split()
        for at in range(0, len(part), width)
    ]


_LONG_PAUSE_S, _PAUSE_MS = 1.0, 300
_SENTENCE = re.compile(r"[.?!…\u3002\uff1f\uff01][^\w\s]*$")
_CLAUSE = re.compile(r"[,;:\u2013\u2014\u3001\uff0c\uff1b\uff1a][^\w\s]*$")
# Words that belong to what follows: articles, prepositions, conjunctions, possessives and auxiliaries. A
# break comes before them (both guides).
_CLINGING = {
    language: frozenset(words.split())
    for language, words in {
        "en": "a an the and or but nor so if that which who when while because as than of in on at by "
        "for from to with into over under about through after before between without my your his "
        "her its our their this these those is are was were be been am has have had do does did "
        "will would can could shall should may might must not very i he she we they it",
        "de": "der die das den dem des ein eine einen einem einer eines und oder aber denn weil dass "
        "wenn als ob in im an am auf aus bei mit nach von vom vor zu zum zur über unter durch für "
        "gegen ohne um mein dein sein ihr unser nicht sehr ich er sie wir es ist sind war waren "
        "hat haben wird werden",
        "fr": "le la les un une des du de et ou mais car que qui quand si à au aux en dans sur sous par "
        "pour avec sans chez vers mon ma mes ton ta tes son sa ses notre nos votre vos leur leurs "
        "ne je tu il elle nous vous ils elles est sont a ont",
        "es": "el la los las un una unos unas y e o u pero que si cuando porque como de del a al en con "
        "por para sin sobre entre hasta desde mi mis tu tus su sus no muy yo él ella es son ha "
        "han",
    }.items()
}
_BREAK, _CLAUSE_BREAK, _PAUSE_BREAK, _PHRASE_BREAK = 4.0, 1.0, 1.0, 8.0
_ONE_MORE, _UNEVEN, _SPANS_SENTENCE, _TOO_SHORT, _TOO_FAST = 1.0, 2.0, 1.5, 12.0, 12.0


def _divide(
    words: Sequence[Word], channel: int, rules: SubtitleRules, clinging: frozenset[str]
) -> Iterator[Cue]:
    """The cues of one run at the words' own times, with the lowest sum of penalties."""
    count = len(words)
    if not count:
        return
    starts, ends = [_ms(word.start) for word in words], [_ms(word.end) for word in words]
    breaks = _break_penalties(words, clinging)
    apart = [0, *(int(is_apart(one.text, other.text)) for one, other in pairwise(words))]
    lengths = [0, *accumulate(space + len(word.text) for space, word in zip(apart, words, strict=True))]
    heard = list(accumulate(apart, initial=0))
    sentences = list(accumulate((penalty == 0.0 for penalty in breaks), initial=0))

    def reach(first: int) -> int:
        """The end of the longest line that begins with word `first`."""
        if first == count:
            return count
        limit = lengths[first] + apart[first] + rules.line_characters
        return bisect_right(lengths, limit, first + 1, count + 1) - 1

    reaches = list(map(reach, range(count + 1)))
    fullest = rules.lines * rules.line_characters
    cost = [0.0] + [float("inf")] * count
    chosen = [0] * (count + 1)
    for first in range(count):
        last_end = reaches[reaches[first]] if rules.lines == 2 else reaches[first]
        for end in range(first + 1, last_end + 1):
            if ends[end - 1] - starts[first] > rules.longest_ms and end > first + 1:
                break
            room = starts[end] - rules.gap_ms - starts[first] if end < count else rules.longest_ms
            room = min(room, rules.longest_ms)
            characters = lengths[end] - lengths[first] - apart[first]
            wanted = rules.time_to_read(characters, heard[end] - heard[first + 1] + 1)
            total = cost[first] + _ONE_MORE + breaks[end]
            total += _UNEVEN * (1 - characters / fullest) ** 2
            total += _SPANS_SENTENCE * (sentences[end] - sentences[first + 1])
            if room < wanted:
                total += _TOO_FAST * (wanted - room) / wanted
            if room < rules.shortest_ms:
                total += _TOO_SHORT * (rules.shortest_ms - room) / rules.shortest_ms
            if total < cost[end]:
                cost[end], chosen[end] = total, first
    bounds = [count]
    while bounds[-1]:
        bounds.append(chosen[bounds[-1]])
    for first, end in pairwise(reversed(bounds)):
        lines = _lines([word.text for word in words[first:end]], breaks[first : end + 1], rules)
        yield Cue(starts[first], max(ends[first:end]), lines, channel)


def _break_penalties(words: Sequence[Word], clinging: frozenset[str]) -> list[float]:
    """What a break before each word costs, and one after the last; 0 after a sentence."""
    penalties = [0.0]
    for before, after in pairwise(words):
        penalty = _BREAK
        if _SENTENCE.search(before.text):
            penalty = 0.0
        elif _CLAUSE.search(before.text):
            penalty = _CLAUSE_BREAK
        elif _ms(after.start) - _ms(before.end) >= _PAUSE_MS:
            penalty = _PAUSE_BREAK
        elif before.text.lower() in clinging:
            penalty = _PHRASE_BREAK
        elif after.text.lower() in clinging:
            penalty = _BREAK / 2
        penalties.append(penalty)
    return [*penalties, 0.0]


def _lines(texts: Sequence[str], breaks: Sequence[float], rules: SubtitleRules) -> tuple[str, ...]:
    """One line if `texts` fit on it, else two that break at a good place and are of about equal length."""
    text, width = join_words(texts), rules.line_characters
    if len(text) <= width:
        return (text,)
    halves = [(at, join_words(texts[:at]), join_words(texts[at:])) for at in range(1, len(texts))]
    fitting = [half for half in halves if len(half[1]) <= width and len(half[2]) <= width]
    _, upper, lower = min(
        fitting, key=lambda half: (breaks[half[0]] + abs(len(half[1]) - len(half[2])) / 4, half[0])
    )
    return upper, lower


def _time_cues(cues: Sequence[Cue], rules: SubtitleRules) -> Iterator[Cue]:
    """One channel's cues, shown long enough to be read where the next ones leave the time."""
    free = 0
    for index, cue in enumerate(cues):
        start = max(cue.start, free)
        wanted = max(rules.shortest_ms, rules.reading_ms(join_words(cue.lines)), cue.end - start)
        end = start + min(wanted, rules.longest_ms)
        if index + 1 < len(cues):
            latest = cues[index + 1].start - rules.gap_ms
            if latest - end < rules.closes_ms - rules.gap_ms and latest - start <= rules.longest_ms:
                end = latest
            # Words may share one instant; even then a cue is shown, if only as a flash.
            end = max(min(end, latest), start + FLASH_MS)
        free = end + rules.gap_ms
        yield replace(cue, start=start, end=end)


def _ms(seconds: float) -> int:
    return round(seconds * 1000)
