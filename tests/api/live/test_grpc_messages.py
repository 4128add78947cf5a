"""The messages made here are those of the published `docs/wenet.proto`."""

import re
from pathlib import Path

import pytest

from api.live.grpc.bridge import _address, _message_of, _response_of
from api.live.grpc.messages import Request, Response

PROTO = Path(__file__).parents[3] / "docs" / "wenet.proto"
NAMES = {5: "int32", 8: "bool", 9: "string", 12: "bytes"}


def published() -> dict[str, set[tuple[str, int, str]]]:
    """Fields and values of each message and enum: name, number, type."""
    found: dict[str, set[tuple[str, int, str]]] = {}
    open_names: list[str] = []
    for line in PROTO.read_text().splitlines():
        code = line.partition("//")[0].strip()
        if match := re.match(r"(message|enum|oneof|service) (\w+) *{", code):
            open_names.append("" if match[1] in ("oneof", "service") else match[2])
        elif code.startswith("}"):
            open_names.pop()
        elif match := re.match(r"((?:repeated )?\w+ )?(\w+) = (\d+);", code):
            owner = next(name for name in reversed(open_names) if name)
            found.setdefault(owner, set()).add((match[2], int(match[3]), (match[1] or "").strip()))
    return found


def test_they_have_the_published_names_numbers_and_types() -> None:
    made: dict[str, set[tuple[str, int, str]]] = {}
    pending = [Request.DESCRIPTOR, Response.DESCRIPTOR]
    while pending:
        message = pending.pop()
        pending += message.nested_types
        for field in message.fields:
            kind = NAMES.get(field.type) or (field.message_type or field.enum_type).name
            kind = f"repeated {kind}" if field.is_repeated else kind
            made.setdefault(message.name, set()).add((field.name, field.number, kind))
        for enum in message.enum_types:
            made[enum.name] = {(value.name, value.number, "") for value in enum.values}
    published_ones = published()
    published_ones.pop("syntax", None)
    assert made == published_ones
    assert [oneof.name for oneof in Request.DESCRIPTOR.oneofs] == ["RequestPayload"]


def test_they_are_written_as_protobuf_has_them() -> None:
    assert Request(decode_config={"nbest_config": 1}).SerializeToString() == b"\x0a\x02\x08\x01"
    assert Request(audio_data=b"ab").SerializeToString() == b"\x12\x02ab"
    piece = {"word": "a", "start": 1, "end": 2}
    written = Response(
        type="speech_end", nbest=[{"sentence": "a", "wordpieces": [piece]}]
    ).SerializeToString()
    assert written == b"\x10\x03\x1a\x0c\x0a\x01a\x12\x07\x0a\x01a\x10\x01\x18\x02"


def test_what_is_said_is_translated() -> None:
    failed = _response_of({"status": "failed", "message": "why"})
    assert (failed.status, failed.nbest[0].sentence) == (1, "why")
    final = _response_of(
        {
            "status": "ok",
            "type": "final_result",
            "nbest": '[{"sentence":"so it","word_pieces":[{"word":"so","start":0,"end":200}]}]',
        }
    )
    assert (final.type, final.nbest[0].sentence, final.nbest[0].wordpieces[0].end) == (2, "so it", 200)
    assert _message_of(Request())["text"] == '{"signal": "start", "nbest": 1, "continuous_decoding": false}'


@pytest.mark.parametrize(
    ("peer", "address"),
    [
        ("ipv4:10.0.0.7:51", ("10.0.0.7", 51)),
        ("ipv6:[::1]:51", ("::1", 51)),
        ("ipv6:%5B::1%5D:51", ("::1", 51)),
        ("unix:/tmp/socket", None),
    ],
)
def test_callers_have_addresses(peer: str, address: tuple[str, int] | None) -> None:
    assert _address(peer) == address
