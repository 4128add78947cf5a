"""Seeded damage to real files: what a fuzzer feeds to readers. The same seed and number give the same bytes.

Knows bytes, lengths and where a file keeps its own structure; knows no reader.
"""

import random
import re
import struct
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

MAX_SEED_BYTES = 1 << 20
_NUMBERS = (0, 1, 2, 0x7F, 0x80, 0xFF, 0x7FFF, 0x8000, 0xFFFF, 0x7FFFFFFF, 0x80000000, 0xFFFFFFFE, 0xFFFFFFFF)
_LONG_NUMBERS = (*_NUMBERS, 1 << 62, (1 << 63) - 1, 1 << 63, (1 << 64) - 1)
# Places where containers, archives and configurations keep what a reader believes.
_STRUCTURE = re.compile(
    rb"RIFF|fmt |data|ds64|fLaC|OggS|ftyp|moov|mdhd|stts|stsc|stsz|stco|co64|elst|esds|stsd|alac|mdat|ID3|"
    rb"Xing|Info|FORM|COMM|SSND|caff|desc|\x1aE\xdf\xa3|PK\x01\x02|PK\x03\x04|PK\x05\x06|data\.pkl|ustar|"
    rb"model_config\.yaml|tokenizer\.model|preprocessor|encoder|decoder|joint|model_weights\.ckpt"
)


@dataclass(frozen=True)
class Seed:
    """A whole file to begin from, and the places in it where its structure lies."""

    name: str
    content: bytes
    places: tuple[int, ...] = ()

    @classmethod
    def of(cls, path: Path) -> "Seed":
        content = path.read_bytes()[:MAX_SEED_BYTES]
        return cls(path.name, content, tuple(found.start() for found in _STRUCTURE.finditer(content)))


def mutated(seeds: Sequence[Seed], seed: int, number: int) -> tuple[str, bytes]:
    """File `number` of the run `seed`: the name of the file it was made of, and its bytes."""
    chance = random.Random(f"{seed}/{number}")
    origin = chance.choice(seeds)
    content = bytearray(origin.content)
    for _ in range(1 + int(chance.expovariate(0.5))):
        _damage(content, origin.places, seeds, chance)
    return origin.name, bytes(content)


def damaged(content: bytes, seeds: Sequence[Seed], seed: int) -> bytes:
    """`content` damaged once as `mutated` does it; the same seed gives the same bytes."""
    damage = bytearray(content)
    places = tuple(found.start() for found in _STRUCTURE.finditer(content))
    _damage(damage, places, seeds, random.Random(seed))
    return bytes(damage)


def _damage(content: bytearray, places: Sequence[int], seeds: Sequence[Seed], chance: random.Random) -> None:
    at = _place(content, places, chance)
    length = min(len(content) - at, int(chance.expovariate(1 / 40)) + 1)
    match chance.randrange(9):
        case 0:
            if at < len(content):
                content[at] ^= 1 << chance.randrange(8)
        case 1:
            content[at : at + length] = chance.randbytes(length)
        case 2:
            _write_number(content, at, chance)
        case 3:
            del content[at : at + length]
        case 4:
            content[at:at] = content[at : at + length]
        case 5:
            content[at : at + length] = bytes(length)
        case 6:
            other = chance.choice(seeds).content
            start = chance.randrange(max(1, len(other)))
            content[at : at + length] = other[start : start + chance.randrange(1, 4096)]
        case 7:
            del content[at:]
        case 8:
            _write_text_number(content, at, chance)


def _place(content: bytearray, places: Sequence[int], chance: random.Random) -> int:
    last = max(1, len(content))
    draw = chance.random()
    if draw < 0.5 and places:
        return min(last - 1, max(0, chance.choice(places) + chance.randrange(-8, 64)))
    if draw < 0.75:
        return chance.randrange(min(last, 512))
    return chance.randrange(last)


def _write_number(content: bytearray, at: int, chance: random.Random) -> None:
    kind = chance.choice(("B", "<H", ">H", "<I", ">I", "<Q", ">Q"))
    size = struct.calcsize(kind)
    number = chance.choice(_LONG_NUMBERS) & (1 << 8 * size) - 1
    if at + size <= len(content):
        struct.pack_into(kind, content, at, number)


def _write_text_number(content: bytearray, at: int, chance: random.Random) -> None:
    """Another number where digits stand: configurations and JSON headers hold theirs as text."""
    number = re.compile(rb"\d+").search(bytes(content[at : at + 4096]))
    if number is not None:
        digits = str(chance.choice((*_LONG_NUMBERS, -1, 3, 17, 1000))).encode()
        content[at + number.start() : at + number.end()] = digits
