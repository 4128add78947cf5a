"""What was transcribed by what, as hashes: the statement of a finished job, and the document that is signed.

Pure. A worker makes the `Statement` as the job ends; the API signs it (`spool.settings.signing_key`). Hashes
of JSON are of its canonical form (RFC 8785), so that anybody can compute them. Times are UTC. There are no
words in a receipt, and no names of recordings. docs/receipts.md describes the format.
"""

import hashlib
import json
from collections.abc import Iterator, Mapping, Sequence
from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field

from spool.domain.recognition import ChunkSpan, DecodedChunk
from spool.domain.transcript import ModelFacts

SCHEMA: Literal["spool.receipt/1"] = "spool.receipt/1"
ALGORITHM: Literal["Ed25519"] = "Ed25519"
Hash = Annotated[str, Field(pattern="^[0-9a-f]{64}$", description="SHA-256 in hexadecimal.")]
KeyId = Annotated[str, Field(pattern="^[0-9a-f]{16}$")]
_LEAST, _MOST = -6, 21
"""Decimal exponents between which RFC 8785 writes a number without an exponent."""


class _Part(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid", defer_build=True)


class ChunkReceipt(_Part):
    """One chunk: its samples at 16 kHz, from the recording's start, and the hash of what was recognised."""

    channel: int
    number: int
    core_start: int
    core_end: int
    start: int
    end: int
    speech: bool
    sha256: Hash

    @property
    def span(self) -> ChunkSpan:
        """Its place in the recording."""
        return ChunkSpan(
            self.channel, self.number, self.core_start, self.core_end, self.start, self.end, self.speech
        )


class Origin(_Part):
    """The job and the transcript from which words were taken without decoding."""

    job: str
    transcript_sha256: Hash


class Code(_Part):
    """The program that transcribed: its version, the hash of its source files, and the version of the
    decoder, which changes when it may give other words."""

    version: str
    sha256: Hash
    decoder: int


class Statement(_Part):
    """What is signed. `fingerprint`: of options and models, None if unknown. `numerics`: the precision and
    the kind of device that decoded, such as `float32/cpu`; None if nothing was decoded."""

    schema_version: Literal["spool.receipt/1"] = SCHEMA
    job: str
    attempt: int
    ended_at: str
    audio_sha256: Hash | None
    """Of the recording's bytes."""
    transcript_sha256: Hash
    """Of the record's bytes, as they were stored."""
    options_sha256: Hash
    """Of the record's `options`."""
    fingerprint: Hash | None
    model: ModelFacts
    others: dict[str, ModelFacts]
    """Other models that had a say, by their part: `language_model`, `diarization`, `witness`."""
    numerics: str | None
    code: Code
    words_from: Origin | None
    """None if all words were decoded for this job and attempt. `chunks` is empty if none were."""
    chunks: tuple[ChunkReceipt, ...]


class Signature(_Part):
    """`value`: the signature in hexadecimal, of the canonical form of the statement."""

    algorithm: Literal["Ed25519"] = ALGORITHM
    key_id: KeyId
    value: Annotated[str, Field(pattern="^[0-9a-f]{128}$")]


class Receipt(_Part):
    """A signed receipt. The file is its canonical form with a newline at its end."""

    statement: Statement
    signature: Signature


class PublicKey(_Part):
    """A key with which receipts were or are signed. `id`: the first 16 digits of the SHA-256 of its 32
    bytes."""

    id: KeyId
    pem: str
    signs: bool
    """Whether new receipts are signed with it."""


def canonical(value: object) -> bytes:
    """The canonical form of a JSON value (RFC 8785)."""
    return "".join(_write(value)).encode()


def digest(value: object) -> str:
    """The SHA-256 (hex) of the canonical form of a JSON value."""
    return hashlib.sha256(canonical(value)).hexdigest()


def key_id_of(public: bytes) -> str:
    """The id of a public key of 32 bytes."""
    return hashlib.sha256(public).hexdigest()[:16]


def receipt_of(chunk: DecodedChunk) -> ChunkReceipt:
    """The chunk's entry. What it cost, which attempt decoded it and in which device batch is not part of the
    hash."""
    span, heard = chunk.span, chunk.heard
    places = (span.channel, span.index, span.core_start, span.core_end, span.start, span.end)
    what = {
        "span": places,
        "words": [word.model_dump(mode="json") for word in heard.words],
        "nbest": [each.model_dump(mode="json") for each in heard.nbest],
        "lattice": heard.lattice and heard.lattice.model_dump(mode="json"),
        "language": heard.language and heard.language.model_dump(mode="json"),
        "tail": chunk.tail,
        "emissions_sha256": None if chunk.emissions is None else hashlib.sha256(chunk.emissions).hexdigest(),
    }
    channel, number, *samples = places
    core_start, core_end, start, end = samples
    return ChunkReceipt(
        channel=channel,
        number=number,
        core_start=core_start,
        core_end=core_end,
        start=start,
        end=end,
        speech=span.speech,
        sha256=digest(what),
    )


def receipts_of(chunks: Sequence[DecodedChunk]) -> tuple[ChunkReceipt, ...]:
    """The entries of all chunks, by channel and number."""
    in_order = sorted(chunks, key=lambda each: (each.span.channel, each.span.index))
    return tuple(map(receipt_of, in_order))


def _write(value: object) -> Iterator[str]:
    if value is None or isinstance(value, bool | str):
        yield json.dumps(value, ensure_ascii=False)
    elif isinstance(value, int | float):
        yield _number(value)
    elif isinstance(value, Mapping):
        yield "{"
        for at, name in enumerate(sorted(value, key=lambda each: str(each).encode("utf-16-be"))):
            yield ("," if at else "") + json.dumps(name, ensure_ascii=False) + ":"
            yield from _write(value[name])
        yield "}"
    elif isinstance(value, Sequence) and not isinstance(value, bytes):
        yield "["
        for at, each in enumerate(value):
            if at:
                yield ","
            yield from _write(each)
        yield "]"
    else:
        raise TypeError(f"{type(value).__name__} is not JSON")


def _number(value: float) -> str:
    """As ECMAScript writes it, which RFC 8785 asks for."""
    if isinstance(value, int) and abs(value) < 1 << 53:
        return str(value)
    value = float(value)
    if value != value or value in (float("inf"), float("-inf")):
        raise ValueError(f"{value} is not JSON")
    if value == 0:
        return "0"
    mantissa, _, exponent = f"{abs(value)!r}".partition("e")
    whole, _, fraction = mantissa.partition(".")
    fraction = "" if fraction == "0" else fraction
    digits = (whole + fraction).lstrip("0")
    point = len(whole) + int(exponent or 0) - (len(whole + fraction) - len(digits))
    digits = digits.rstrip("0")
    sign = "-" if value < 0 else ""
    if 0 < point <= _MOST:
        padded = digits.ljust(point, "0")
        return sign + padded[:point] + (f".{padded[point:]}" if len(padded) > point else "")
    if _LEAST < point <= 0:
        return f"{sign}0.{'0' * -point}{digits}"
    power = point - 1
    shown = digits[0] + (f".{digits[1:]}" if len(digits) > 1 else "")
    return f"{sign}{shown}e{'+' if power > 0 else '-'}{abs(power)}"
