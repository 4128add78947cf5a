"""Voice prints of speakers, and which known voices they may be.

Pure. A print is the normalised mean of a voice encoder's embeddings, as little-endian float32 bytes; two are
compared by their cosine, and only if the same encoder made both.
"""

from array import array
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from math import sqrt
from operator import mul
from typing import Annotated

from spool.domain.columns import Id, Length, Name

SAME_VOICE = 0.90
"""The cosine from which a voice is worth showing (docs/speakers.md)."""
MOST_VOICE_MATCHES = 3


@dataclass(frozen=True)
class Voice:
    """A voice that a person named."""

    id: Id
    project: Name
    name: Annotated[str, Length(100)]


@dataclass(frozen=True)
class KnownVoice(Voice):
    """A voice, and the number of prints it is based on."""

    recordings: int


@dataclass(frozen=True, slots=True)
class VoiceMatch:
    """A voice that a speaker may be; `similarity` is the cosine of their prints."""

    voice: KnownVoice
    similarity: float


def matches_of(prints: Mapping[str, bytes], known: Mapping[KnownVoice, bytes]) -> dict[str, list[VoiceMatch]]:
    """For each label of `prints` the known voices that resemble it, the most similar first, at most
    `MOST_VOICE_MATCHES`."""
    return {
        label: sorted(
            (
                VoiceMatch(voice, round(similarity, 3))
                for voice, other in known.items()
                if (similarity := cosine(own, other)) >= SAME_VOICE
            ),
            key=lambda match: (-match.similarity, match.voice.name),
        )[:MOST_VOICE_MATCHES]
        for label, own in prints.items()
    }


def mean_print(prints: Sequence[bytes]) -> bytes:
    """The normalised mean of one or more prints."""
    sums = [sum(column) for column in zip(*(_values(each) for each in prints), strict=True)]
    length = sqrt(sum(value * value for value in sums)) or 1.0
    return array("f", [value / length for value in sums]).tobytes()


def cosine(a: bytes, b: bytes) -> float:
    """The cosine of two normalised prints. Raises ValueError if their sizes differ."""
    if len(a) != len(b):
        raise ValueError("voice prints of different sizes")
    return float(sum(map(mul, _values(a), _values(b))))


def _values(print_: bytes) -> Iterable[float]:
    values = array("f")
    values.frombytes(print_)
    return values
