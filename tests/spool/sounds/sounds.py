"""What a phoneme model would hear, made of known words."""

from collections.abc import Sequence

import numpy as np

from spool.sounds.lexicon import Lexicon, parse_entries
from spool.sounds.phones import BEST, COLUMNS, END, FRAME_SECONDS, HEARD, PHONES, SILENCE, PhoneFrames

DICTIONARY = """
the DH AH
old OW L D
teacher T IY CH ER
gave G EY V
us AH S
three TH R IY
reasons R IY Z AH N Z
why W AY
music M Y UW Z IH K
matters M AE T ER Z
please P L IY Z
remember R IH M EH M B ER
to T UW
close K L OW S
close(2) K L OW Z
both B OW TH
windows W IH N D OW Z
nobody N OW B AA D IY
expected IH K S P EH K T AH D
such S AH CH
a AH
quiet K W AY AH T
answer AE N S ER
ships SH IH P S
brought B R AO T
coffee K AA F IY
sugar SH UH G ER
and AE N D
cotton K AA T AH N
winter W IH N T ER
thank TH AE NG K
you Y UW
for F AO R
watching W AA CH IH NG
this DH IH S
video V IH D IY OW
"""
LEXICON = Lexicon(parse_entries(DICTIONARY.splitlines())[0])
PHONE_FRAMES = 4
WORD_GAP = 3


def hear(
    said: Sequence[tuple[float, str]], seconds: float, seed: int = 1, lexicon: Lexicon = LEXICON
) -> tuple[PhoneFrames, list[tuple[float, float]]]:
    """Frames in which each text is said from its second on, with some confusion; and when each text is
    said."""
    rng = np.random.default_rng(seed)
    table = np.full((round(seconds / FRAME_SECONDS), COLUMNS), 255, np.uint8)
    table[:, HEARD], table[:, BEST], table[:, SILENCE] = 0, 1, 0
    spans = []
    for start, text in said:
        at = first = round(start / FRAME_SECONDS)
        for word in text.split():
            for phone in lexicon.pronounce(word)[0]:
                table[at : at + 2, : len(PHONES)] = rng.integers(60, 200, (2, len(PHONES)))
                wrong = rng.random() < 0.1
                table[at : at + 2, phone] = 40 if wrong else 0
                table[at : at + 2, (phone + 7) % len(PHONES)] = 0 if wrong else 90
                table[at : at + 2, SILENCE] = 120
                table[at, HEARD] = 1
                at += PHONE_FRAMES
            table[at : at + WORD_GAP, END] = 0
            at += WORD_GAP
        spans.append((first * FRAME_SECONDS, at * FRAME_SECONDS))
    return PhoneFrames(table), spans
