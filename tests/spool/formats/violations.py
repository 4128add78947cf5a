"""Which of the published rules subtitles break."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Literal

from spool.domain.spacing import join_words
from spool.formats.cueing import Cue, SubtitleRules


@dataclass(frozen=True, slots=True)
class Violation:
    """A rule that a cue breaks: what was found, and the rule's limit. `forced`: the cue lasts as long as the
    next words of its channel or the longest time allow."""

    cue: int
    """Its number, from 1."""
    rule: Literal["line_characters", "lines", "reading_speed", "shortest", "longest", "gap"]
    found: float
    limit: float
    forced: bool = False


def violations_of(cues: Sequence[Cue], rules: SubtitleRules) -> list[Violation]:
    """The rules that `cues`, by start, break. Cues of different channels may share the time."""
    found = []
    numbered = list(enumerate(cues, 1))
    for channel in sorted({cue.channel for cue in cues}):
        mine = [each for each in numbered if each[1].channel == channel]
        following = [*(cue.start for _, cue in mine[1:]), None]
        for (number, cue), next_start in zip(mine, following, strict=True):
            lasts = cue.end - cue.start
            room = None if next_start is None else next_start - cue.end
            full = lasts >= rules.longest_ms or (room is not None and room <= rules.gap_ms)
            widest = max(map(len, cue.lines))
            wanted = rules.reading_ms(join_words(cue.lines))
            checks: Iterable[tuple[bool, Violation]] = (
                (
                    widest > rules.line_characters,
                    Violation(number, "line_characters", widest, rules.line_characters),
                ),
                (len(cue.lines) > rules.lines, Violation(number, "lines", len(cue.lines), rules.lines)),
                (lasts < wanted, Violation(number, "reading_speed", lasts, wanted, full)),
                (lasts < rules.shortest_ms, Violation(number, "shortest", lasts, rules.shortest_ms, full)),
                (lasts > rules.longest_ms, Violation(number, "longest", lasts, rules.longest_ms)),
                (
                    room is not None and room < rules.gap_ms,
                    Violation(number, "gap", room or 0, rules.gap_ms),
                ),
            )
            found += [violation for broken, violation in checks if broken]
    return sorted(found, key=lambda violation: violation.cue)
