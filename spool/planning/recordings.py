"""How long the recordings are, and the pieces that a worker makes of them.

A worker cuts where somebody pauses between 20 and 30 s (`worker.segmentation.chunker`), 25 s on average of
long recordings; what is shorter stays whole. Lengths are seconds; shares are of the audio, not of the
recordings.
"""

import json
import math
import re
from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from spool.errors import InvalidRequest

CHUNK_SECONDS = 25.0
WHOLE_SECONDS = 30.0
_LENGTH = re.compile(r"(\d+(?:\.\d+)?)\s*(h|m|s|)")
_UNITS = {"h": 3600.0, "m": 60.0, "s": 1.0, "": 1.0}
KINDS = 20  # lengths within 5 % are one kind
KBIT = 128.0  # a second of compressed speech, and of FLAC at 16 kHz


@dataclass(frozen=True, slots=True)
class Lengths:
    """`shares`: length of a recording and its share of the audio, summing to one. `kbit`: thousand bits for a
    second of audio, as it is stored. `seconds`: how much was measured, if it was."""

    shares: tuple[tuple[float, float], ...]
    kbit: float = KBIT
    seconds: float | None = None
    recordings: int | None = None

    @property
    def mean(self) -> float:
        """The mean length of a recording."""
        return 1 / sum(share / length for length, share in self.shares)

    def chunks(self, chunk_seconds: float = CHUNK_SECONDS) -> tuple[tuple[float, float], ...]:
        """Lengths of the pieces, and the share of the audio that is in pieces of that length."""
        longest = WHOLE_SECONDS * chunk_seconds / CHUNK_SECONDS
        shares: defaultdict[float, float] = defaultdict(float)
        for length, share in self.shares:
            count = 1 if length <= longest else round(length / chunk_seconds)
            shares[round(length / max(1, count), 2)] += share
        return tuple(sorted(shares.items()))


def parse_lengths(text: str) -> Lengths:
    """`45m`, or lengths with their shares of the audio: `20s:10%,5m:40%,1h:50%`. Raises InvalidRequest."""
    shares: list[tuple[float, float]] = []
    parts = [part.strip() for part in text.split(",") if part.strip()]
    for part in parts:
        length, _, share = part.partition(":")
        match = _LENGTH.fullmatch(length.strip().lower())
        weight = share.strip().removesuffix("%")
        if match is None or float(match[1]) <= 0 or (len(parts) > 1 and not weight):
            raise InvalidRequest(f"{part!r} is not a length; use 45m, or 5m:40% for a share of the audio.")
        try:
            shares.append((float(match[1]) * _UNITS[match[2]], float(weight) if weight else 1.0))
        except ValueError as error:
            raise InvalidRequest(f"{share!r} is not a share of the audio; use 40%.") from error
    return _normalise(shares)


def read_lengths(path: Path) -> Lengths:
    """What `spool-worker measure --json` printed. Raises InvalidRequest."""
    try:
        tree = json.loads(path.read_text(encoding="utf-8"))
        return summarize([(float(item["seconds"]), int(item["bytes"])) for item in tree["recordings"]])
    except OSError as error:
        raise InvalidRequest(f"{path} cannot be read: {error.strerror}.") from error
    except (ValueError, KeyError, TypeError) as error:
        raise InvalidRequest(f"{path} is not the output of `spool-worker measure --json`.") from error


def summarize(recordings: Iterable[tuple[float, int]]) -> Lengths:
    """Lengths of recordings of so many seconds and bytes each. Raises InvalidRequest for none."""
    kept = [(seconds, size) for seconds, size in recordings if seconds > 0]
    if not kept:
        raise InvalidRequest("There is no recording with any audio to plan for.")
    kinds: defaultdict[int, list[float]] = defaultdict(list)
    for seconds, _ in kept:
        kinds[_kind(seconds)].append(seconds)
    total = sum(seconds for seconds, _ in kept)
    lengths = _normalise([(sum(kind) / len(kind), sum(kind)) for kind in kinds.values()])
    bits = 8 * sum(size for _, size in kept)
    return Lengths(lengths.shares, bits / 1000 / total, total, len(kept))


def _kind(seconds: float) -> int:
    return round(math.log(seconds) * KINDS)


def _normalise(shares: list[tuple[float, float]]) -> Lengths:
    total = sum(share for _, share in shares)
    if not shares or total <= 0 or any(share < 0 for _, share in shares):
        raise InvalidRequest("The lengths' shares of the audio have to be positive.")
    return Lengths(tuple(sorted((length, share / total) for length, share in shares)))
