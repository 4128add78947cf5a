"""Receipts: the canonical form, the hashes of chunks, and that nothing can be changed unnoticed."""

import json
import random
import struct
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from spool.domain.receipts import (
    ChunkReceipt,
    Code,
    Origin,
    Receipt,
    Statement,
    canonical,
    digest,
    receipt_of,
)
from spool.domain.recognition import ChunkSpan, DecodedChunk, Recognition
from spool.domain.transcript import ChunkLanguage, ModelFacts, NbestText, Word
from spool.errors import InvalidRequest
from spool.settings.signing_key import (
    ReceiptInvalid,
    Signer,
    check_audio,
    check_options,
    check_receipt,
    check_transcript,
    signed,
)

SPAN = ChunkSpan(0, 3, 16_000, 320_000, 8_000, 328_000)
WORD = Word(text="keep", start=1.25, end=1.5, confidence=0.75)
HEARD = Recognition(
    words=(WORD,), nbest=(NbestText(text="keep", score=-1.5),), language=ChunkLanguage(code="en")
)
CHUNK = DecodedChunk(SPAN, HEARD, tail=((7, 9_000),))
OPTIONS: dict[str, Any] = {
    "model": "demo-tdt",
    "decoder": "beam",
    "beam": 8,
    "lm_weight": 0.3,
    "language": None,
    "speech_detector": True,
    "boost": {"sha256": "5" * 64, "weight": 1.5},
}
KEYS = ("a" * 40, "b" * 40)


def statement_of(audio: bytes, transcript: bytes, options: dict[str, Any] = OPTIONS) -> Statement:
    import hashlib

    return Statement(
        job="job_01",
        attempt=2,
        ended_at="2026-01-02T03:04:05Z",
        audio_sha256=hashlib.sha256(audio).hexdigest(),
        transcript_sha256=hashlib.sha256(transcript).hexdigest(),
        options_sha256=digest(options),
        fingerprint="c" * 64,
        model=ModelFacts(name="demo-tdt", sha256="d" * 64),
        others={"witness": ModelFacts(name="phones", sha256="e" * 64)},
        numerics="float32/cpu",
        code=Code(version="1.0", sha256="f" * 64, decoder=5),
        words_from=None,
        chunks=(receipt_of(CHUNK),),
    )


AUDIO = bytes(random.Random(1).randbytes(5_000))
RECORD = json.dumps({"options": OPTIONS, "text": "Grüße: keep the light"}, ensure_ascii=False).encode()


def signed_by(signer: Signer, statement: Statement | None = None) -> bytes:
    text = canonical((statement or statement_of(AUDIO, RECORD)).model_dump(mode="json"))
    return signed(text.decode(), signer.sign(text))


def pem_of(signer: Signer) -> bytes:
    return signer.public_keys()[0].pem.encode()


@pytest.mark.parametrize(
    ("bits", "text"),
    [
        ("0000000000000000", "0"),
        ("8000000000000000", "0"),
        ("0000000000000001", "5e-324"),
        ("7fefffffffffffff", "1.7976931348623157e+308"),
        ("4340000000000000", "9007199254740992"),
        ("4430000000000000", "295147905179352830000"),
        ("44b52d02c7e14af5", "9.999999999999997e+22"),
        ("44b52d02c7e14af6", "1e+23"),
        ("444b1ae4d6e2ef50", "1e+21"),
        ("3eb0c6f7a0b5ed8d", "0.000001"),
        ("3eb0c6f7a0b5ed8c", "9.999999999999997e-7"),
        ("41b3de4355555553", "333333333.3333332"),
        ("becbf647612f3696", "-0.0000033333333333333333"),
        ("43143ff3c1cb0959", "1424953923781206.2"),
    ],
)
def test_numbers_are_written_as_rfc_8785_writes_them(bits: str, text: str) -> None:
    assert canonical(struct.unpack(">d", bytes.fromhex(bits))[0]) == text.encode()


def test_the_canonical_form_is_that_of_rfc_8785() -> None:
    given = {
        "numbers": [333333333.33333329, 1e30, 4.50, 2e-3, 1e-27],
        "string": '\u20ac$\u000f\nA\'B"\\\\"/',
        "literals": [None, True, False],
    }
    assert canonical(given).decode() == (
        '{"literals":[null,true,false],"numbers":[333333333.3333333,1e+30,4.5,0.002,1e-27],'
        '"string":"€$\\u000f\\nA\'B\\"\\\\\\\\\\"/"}'
    )
    names = {"\u20ac": 1, "\r": 2, "\ufb33": 3, "1": 4, "\U0001f600": 5, "\u0080": 6, "\u00f6": 7}
    assert list(json.loads(canonical(names)).values()) == [2, 4, 6, 7, 1, 5, 3]
    for wrong in (float("nan"), float("inf")):
        with pytest.raises(ValueError, match="is not JSON"):
            canonical(wrong)
    with pytest.raises(TypeError, match="bytes is not JSON"):
        canonical({"a": b""})


@pytest.mark.parametrize(
    "changed",
    [
        replace(CHUNK, span=replace(SPAN, core_end=319_999)),
        replace(CHUNK, heard=replace(HEARD, words=(WORD.model_copy(update={"text": "kept"}),))),
        replace(CHUNK, heard=replace(HEARD, words=(WORD.model_copy(update={"end": 1.501}),))),
        replace(CHUNK, heard=replace(HEARD, words=(WORD.model_copy(update={"confidence": 0.7500001}),))),
        replace(CHUNK, heard=replace(HEARD, nbest=(NbestText(text="keep", score=-1.25),))),
        replace(CHUNK, heard=replace(HEARD, language=ChunkLanguage(code="de"))),
        replace(CHUNK, tail=((7, 9_001),)),
        replace(CHUNK, emissions=b"x"),
    ],
)
def test_a_chunks_hash_is_of_what_was_recognised(changed: DecodedChunk) -> None:
    assert receipt_of(changed).sha256 != receipt_of(CHUNK).sha256


def test_a_chunks_hash_is_not_of_what_it_cost() -> None:
    other = replace(HEARD, engine_ns=5, batch_size=7, makers=("m",))
    assert receipt_of(replace(CHUNK, heard=other, attempt=4, fingerprint="x")) == receipt_of(CHUNK)


def test_a_receipt_is_what_was_signed(tmp_path: Path) -> None:
    signer, other = Signer(KEYS[:1]), Signer(KEYS[1:])
    file = signed_by(signer)
    receipt = check_receipt(file, [pem_of(other), pem_of(signer)])
    assert receipt.statement == statement_of(AUDIO, RECORD)
    assert receipt.signature.key_id == signer.key_id
    audio, record = tmp_path / "a.wav", tmp_path / "t.json"
    audio.write_bytes(AUDIO)
    record.write_bytes(RECORD)
    check_audio(receipt.statement, audio)
    assert check_transcript(receipt.statement, record)["options"] == OPTIONS
    with pytest.raises(ReceiptInvalid, match=f"signed with key {signer.key_id}, not with {other.key_id}"):
        check_receipt(file, [pem_of(other)])
    unread = receipt.statement.model_copy(update={"audio_sha256": None})
    with pytest.raises(ReceiptInvalid, match="does not say which recording"):
        check_audio(unread, audio)


@pytest.mark.parametrize(
    ("key", "sentence"),
    [
        (b"", "not a public key in PEM"),
        (b"-----BEGIN PUBLIC KEY-----\nAAAA\n-----END PUBLIC KEY-----\n", "not readable"),
    ],
)
def test_what_is_no_key_is_refused(key: bytes, sentence: str) -> None:
    with pytest.raises(InvalidRequest, match=sentence):
        check_receipt(signed_by(Signer(KEYS)), [key])


@pytest.mark.parametrize("file", [b"", b"{", b"[]", b"\xff", b'{"statement":{}}', b"[" * 100_000])
def test_what_is_no_receipt_is_refused(file: bytes) -> None:
    with pytest.raises(ReceiptInvalid, match="not a receipt"):
        check_receipt(file, [pem_of(Signer(KEYS))])


def test_receipts_of_a_retired_key_stay_checkable() -> None:
    before, after = Signer(KEYS[:1]), Signer((KEYS[1], KEYS[0]))
    known = [key.pem.encode() for key in after.public_keys()]
    assert [key.signs for key in after.public_keys()] == [True, False]
    for signer in (before, after):
        assert check_receipt(signed_by(signer), [b"".join(known)]).signature.key_id == signer.key_id
    assert before.key_id != after.key_id


def flip(data: bytes, chance: random.Random) -> bytes:
    """The data with one bit changed."""
    at = chance.randrange(len(data))
    return data[:at] + bytes([data[at] ^ 1 << chance.randrange(8)]) + data[at + 1 :]


def change_option(options: dict[str, Any], chance: random.Random) -> dict[str, Any]:
    """The options with another value somewhere, an option less or one more."""
    changed = json.loads(json.dumps(options))
    name = chance.choice(sorted(changed))
    value = changed[name]
    match chance.randrange(4):
        case 0:
            del changed[name]
        case 1:
            changed[f"{name}_"] = value
        case _ if isinstance(value, bool):
            changed[name] = not value
        case _ if isinstance(value, int | float):
            changed[name] = value + chance.choice([1, -1, 0.125, 1e-9])
        case _ if isinstance(value, dict):
            changed[name] = change_option(value, chance)
        case _:
            changed[name] = f"{value}{chance.randrange(9)}"
    return changed


ORIGIN = Origin(job="job_00", transcript_sha256="9" * 64)
LIVE = {"sample_rate": 48_000, "channels": 2, "silence_ms": 600, "att_context": [70, 1], "then": None}
ALIGN = {"words": 214, "sha256": "7" * 64}


@pytest.mark.parametrize(
    ("more_options", "changes"),
    [
        pytest.param({}, {}, id="decoded"),
        pytest.param({}, {"words_from": ORIGIN, "chunks": (), "numerics": None}, id="reused"),
        pytest.param({}, {"words_from": ORIGIN}, id="a stretch"),
        pytest.param({"live": LIVE}, {"chunks": (receipt_of(replace(CHUNK, tail=())),)}, id="a live session"),
        pytest.param(
            {"align": ALIGN}, {"chunks": (receipt_of(replace(CHUNK, emissions=b"e")),)}, id="an aligned text"
        ),
    ],
)
def test_a_thousand_flipped_bits_and_options_are_all_noticed(
    tmp_path: Path, more_options: dict[str, Any], changes: dict[str, Any]
) -> None:
    signer, chance = Signer(KEYS), random.Random(34)
    options = OPTIONS | more_options
    record = json.dumps({"options": options, "text": "Grüße: keep the light"}, ensure_ascii=False).encode()
    made = statement_of(AUDIO, record, options).model_copy(update=changes)
    file, pem = signed_by(signer, made), pem_of(signer)
    statement = check_receipt(file, [pem]).statement
    own = tmp_path / "file"

    def of_receipt() -> None:
        check_receipt(flip(file, chance), [pem])

    def of_audio() -> None:
        own.write_bytes(flip(AUDIO, chance))
        check_audio(statement, own)

    def of_transcript() -> None:
        own.write_bytes(flip(record, chance))
        check_transcript(statement, own)

    def of_options() -> None:
        check_options(statement, change_option(options, chance))

    attacks: tuple[Callable[[], None], ...] = (of_receipt, of_audio, of_transcript, of_options)
    noticed = 0
    for _ in range(250):
        for attack in attacks:
            with pytest.raises(ReceiptInvalid):
                attack()
            noticed += 1
    assert noticed == 1000


def test_another_form_of_the_same_receipt_is_noticed() -> None:
    signer = Signer(KEYS)
    file, pem = signed_by(signer), pem_of(signer)
    value = json.loads(file)["signature"]["value"]
    forms = (
        json.dumps(json.loads(file)).encode() + b"\n",
        file + b"\n",
        file[:-1],
        file.replace(b'{"signature"', b'{"signature":null,"signature"', 1),
        file.replace(b'"attempt":2', b'"attempt":2.0'),
        file.replace(value.encode(), value.upper().encode()),
    )
    for form in forms:
        assert form != file
        with pytest.raises(ReceiptInvalid):
            check_receipt(form, [pem])


def test_a_receipt_of_taken_over_words_names_their_origin() -> None:
    taken = statement_of(AUDIO, RECORD).model_copy(update={"words_from": ORIGIN, "chunks": ()})
    file = signed_by(Signer(KEYS), taken)
    assert Receipt.model_validate_json(file).statement.words_from == ORIGIN


def test_a_chunks_entry_has_its_place() -> None:
    entry = receipt_of(CHUNK)
    assert entry.span == SPAN
    assert ChunkReceipt.model_validate(json.loads(canonical(entry.model_dump()))) == entry
