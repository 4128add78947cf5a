"""Lines that nobody said, of as many phones as a given one: what chance gives."""

import hashlib

import numpy as np

from spool.sounds.alignment import Line
from spool.sounds.lexicon import Pronunciation
from spool.sounds.phones import NUMBERS

DECOYS = 16
"""Of each line."""
_PROSE = """
P IY P AH L; AO F AH N; S EY; DH AE T; DH AH; W EH DH ER; HH IY R; CH EY N JH AH Z; B IH F AO R; EH N IY W
AH N; K AE N; F AY N D; AE N; AH M B R EH L AH; M AY; B R AH DH ER; Y UW Z D; T UW; W ER K; AE T; DH AH; HH
AA R B ER; W EH R; L AA R JH; SH IH P S; B R AO T; K AA F IY; SH UH G ER; AH N D; K AA T AH N; EH V ER IY; W
IH N T ER; SH IY; W UH D; R AE DH ER; W AO K; HH OW M; TH R UW; DH AH; P AA R K; DH AE N; W EY T; F AO R; AH
N AH DH ER; K R AW D AH D; B AH S; W EH N; CH IH L D R AH N; L ER N; AH; N UW; G EY M; DH EY; K W IH K L IY;
F ER G EH T; AH B AW T; S AH P ER; Y EH S T ER D EY; W IY; F AY N AH L IY; OW P AH N D; DH AH; G R IY N; D
AO R; B IH HH AY N D; DH AH; K IH CH AH N; AH N D; D IH S K AH V ER D; S EH V AH N; B AA K S AH Z; F UH L;
AH V; L EH T ER Z; N OW B AA D IY; IH K S P EH K T AH D; S AH CH; AH; K W AY AH T; AE N S ER; F R AH M; HH
IH M; AE F T ER; D IH N ER; P L IY Z; R IH M EH M B ER; T UW; K L OW S; B OW TH; W IH N D OW Z; B IH K AO Z;
DH AH; N AY T; W IH L; B IY; K OW L D; P ER HH AE P S; S AH M TH IH NG; G UH D; K UH D; HH AE P AH N; IH F;
EH V R IY W AH N; AH G R IY D; AA N; AH; S IH M P AH L; P L AE N; B IH F AO R; M AH N D IY; DH AH; OW L D; T
IY CH ER; G EY V; AH S; TH R IY; R IY Z AH N Z; W AY; M Y UW Z IH K; M AE T ER Z; M AO R; DH AE N; M AH N IY
"""
"""Some sentences of plain prose, word by word."""
_WORDS: tuple[Pronunciation, ...] = tuple(
    tuple(NUMBERS[phone] for phone in word.split()) for word in _PROSE.split(";")
)


def make_decoys(line: Line) -> list[Line]:
    """Words from some place of the prose on in the same frames; the same for the same line."""
    seed = hashlib.sha256(repr(line.words).encode()).digest()
    starts = np.frombuffer(seed, np.uint8, DECOYS).astype(int) + np.arange(DECOYS) * 7
    return [Line(line.first, line.last, _run(start, line.phones)) for start in starts.tolist()]


def _run(start: int, phones: int) -> tuple[Pronunciation, ...]:
    words: list[Pronunciation] = []
    while phones > 0:
        word = _WORDS[(start + len(words)) % len(_WORDS)][:phones]
        words.append(word)
        phones -= len(word)
    return tuple(words)
