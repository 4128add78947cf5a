"""Phones as a phoneme model hears them: probabilities of the 39 ARPABET phones, of silence and of a word's
end, a frame of 20 ms at a time.

Plain numpy. A frame takes 43 bytes, 8 MB an hour, so that a long recording can be kept until all of it is
heard.
"""

# ruff: noqa: RUF001 - symbols of the phonetic alphabet

import zlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Self

import numpy as np
from numpy.typing import NDArray

FRAME_SECONDS = 0.02
_TABLE = """
AA ɑ | ɔ ɒ a ä
AE æ | a
AH ʌ ə | ɐ
AO ɔ | ɑ ɒ o
AW aʊ
AY aɪ
B b
CH t͡ʃ | t͡ɕ t͡ɕʰ
D d | ɾ ɖ
DH ð | d
EH ɛ | e eə
ER ɝ | ɚ ɜ
EY eɪ | e
F f | ɸ
G g ɡ | ɣ
HH h | ɦ x
IH ɪ | ɨ ɪə
IY i
JH d͡ʒ | ʒ
K k | kʰ k͈
L l | ɫ
M m | ɱ
N n | ɲ ɴ
NG ŋ
OW oʊ | o
OY ɔɪ
P p | pʰ p͈
R ɹ | r ɻ ɾ
S s | s͈ ʂ
SH ʃ | ɕ
T t | tʰ t͈ ɾ ʔ
TH θ
UH ʊ
UW u | ʉ ju
V v | ʋ β
W w | ɰ
Y j | ʝ
Z z
ZH ʒ | ʑ ʐ
"""
"""Each phone, what hama writes for it, and behind the bar what is taken for it as well (`silent` apart)."""
_MARKS = (
    "\u02b0\u02b1\u02b2\u02b7\u02d0\u02d1\u02de\u0303\u031a\u031d\u031e\u031f"
    "\u0320\u0325\u0329\u032a\u032c\u032f\u0330\u035c\u0361\u203f"
)
"""Lengths, joins and other marks that follow a symbol."""
SILENT = frozenset({"<pad>", "<sos>", "<eos>", " ", ",", *_MARKS})
BOUNDARY = "<wb>"


def _read_table() -> dict[str, tuple[tuple[str, ...], tuple[str, ...]]]:
    rows = {}
    for line in _TABLE.strip().splitlines():
        phone, _, symbols = line.partition(" ")
        usual, _, also = symbols.partition("|")
        rows[phone] = tuple(usual.split()), tuple(also.split())
    return rows


_SYMBOLS = _read_table()
PHONES = tuple(_SYMBOLS)
NUMBERS = {phone: number for number, phone in enumerate(PHONES)}
SILENCE, END, HEARD, BEST = range(len(PHONES), len(PHONES) + 4)
"""Columns of `PhoneFrames.table` behind the phones: silence, the end of a word, whether a sound begins, and
the best symbol's own probability."""
COLUMNS = BEST + 1
STEP = 0.05
"""Nats a step of the table; its last step stands for all that is less likely."""


def phones_of_symbols(symbols: Sequence[str]) -> list[int]:
    """The phones that a pronunciation in the model's symbols comes nearest to; marks are left out."""
    return [_NEAREST[symbol] for symbol in symbols if symbol in _NEAREST]


def symbols_of_text(text: str) -> tuple[list[str], str]:
    """Text in the phonetic alphabet as symbols that are known here, and the first character that is not."""
    symbols: list[str] = []
    at = 0
    while at < len(text):
        size = next((each for each in (3, 2, 1) if text[at : at + each] in _NEAREST), 0)
        if size:
            symbols.append(text[at : at + size])
        elif text[at] not in SILENT and text[at] not in "ː'-":
            return symbols, text[at]
        at += max(size, 1)
    return symbols, ""


def _nearest() -> Mapping[str, int]:
    also = {symbol: number for number, phone in enumerate(PHONES) for symbol in reversed(_SYMBOLS[phone][1])}
    return also | {symbol: number for number, phone in enumerate(PHONES) for symbol in _SYMBOLS[phone][0]}


_NEAREST = _nearest()


class PhoneMap:
    """From the labels of one model to phones. labels: its symbols in order; blank is behind them."""

    def __init__(self, labels: Sequence[str]) -> None:
        """Raises ValueError for a model that lacks a phone."""
        self._labels = tuple(labels)
        numbers = {label: number for number, label in enumerate(labels)}
        sets = []
        for phone in PHONES:
            own = [numbers[each] for part in _SYMBOLS[phone] for each in part if each in numbers]
            if not own:
                raise ValueError(f"the model has no symbol for {phone}")
            sets.append(own)
        self._mixing = np.zeros((len(labels) + 1, len(PHONES) + 2), np.float32)
        for column, own in enumerate(sets):
            self._mixing[own, column] = 1.0
        silent = [number for label, number in numbers.items() if label in SILENT]
        self._mixing[[*silent, len(labels)], SILENCE] = 1.0
        self._mixing[numbers[BOUNDARY], END] = 1.0
        self._is_quiet = self._mixing[:, [SILENCE, END]].any(axis=1)

    def fold(self, log_probs: NDArray[np.float32], floor: float) -> NDArray[np.float32]:
        """The probabilities of phones, silence and the end of a word, [T, len(PHONES) + 2], of
        log-probabilities [T, labels + 1], blank last; what is at `floor` counts as impossible. Phones share
        symbols, so that a frame may add up to more than one."""
        probabilities = np.where(log_probs > floor, np.exp(log_probs), 0.0).astype(np.float32)
        folded: NDArray[np.float32] = probabilities @ self._mixing
        return folded

    def frames(self, log_probs: NDArray[np.float32], floor: float) -> NDArray[np.uint8]:
        """uint8 [T, COLUMNS] of log-probabilities [T, labels + 1], blank last; what is at `floor` counts as
        impossible. The first frame of a stretch begins no sound that went on before it."""
        table = np.zeros((len(log_probs), COLUMNS), np.uint8)
        if not len(log_probs):
            return table
        top = log_probs.argmax(axis=1)
        peak = log_probs.max(axis=1)
        best = np.where(peak > floor, np.exp(peak), 0.0).astype(np.float32)
        shares = self.fold(log_probs, floor) / best[:, None]
        table[:, :HEARD] = _steps(np.log(np.maximum(shares, 1e-9)))
        is_quiet: NDArray[np.bool_] = np.asarray(self._is_quiet)
        table[:, HEARD] = ~is_quiet[top] & (top != np.append(-1, top[:-1]))
        table[:, BEST] = _steps(np.log(best))
        return table


def _steps(logs: NDArray[np.float32]) -> NDArray[np.uint8]:
    return np.asarray(np.clip(np.rint(logs / -STEP), 0, 255), np.uint8)


@dataclass(frozen=True, eq=False)
class PhoneFrames:
    """The frames of one channel from its beginning. table: uint8 [T, COLUMNS]: how much less likely than the
    best symbol each phone, silence and the end of a word are, in steps of `STEP` nats; 1 where a sound
    begins; the best symbol's own probability in the same steps."""

    table: NDArray[np.uint8]

    @classmethod
    def unpack(cls, data: bytes) -> Self:
        """The inverse of `pack`."""
        columns = np.frombuffer(zlib.decompress(data), np.uint8).reshape(COLUMNS, -1)
        return cls(np.ascontiguousarray(columns.T))

    def pack(self) -> bytes:
        """The frames as bytes, some 3 MB an hour: a column's neighbours are alike."""
        return zlib.compress(np.ascontiguousarray(self.table.T).tobytes(), 1)

    @property
    def seconds(self) -> float:
        """How long they last."""
        return len(self.table) * FRAME_SECONDS

    @cached_property
    def heard(self) -> NDArray[np.int64]:
        """Sounds that begin before each frame and after the last, [T + 1]."""
        return np.append(0, np.cumsum(self.table[:, HEARD], dtype=np.int64))

    def sounds(self, first: int, last: int) -> int:
        """How many sounds begin in [first, last)."""
        return int(self.heard[last] - self.heard[first]) if last > first else 0

    def frame(self, seconds: float) -> int:
        """The frame at a time, within the recording."""
        return min(max(round(seconds / FRAME_SECONDS), 0), len(self.table))
