"""Closed times of WAV files are zeros, sample by sample, whatever bytes are asked for."""

import io
import struct

import pytest

from spool.recordings.silence import mute_wav

RATE = 100


def wav(samples: bytes, kind: int = 1, bits: int = 16, channels: int = 1, extra: bytes = b"") -> bytes:
    frame = channels * bits // 8
    fmt = struct.pack("<HHIIHH", kind, channels, RATE, RATE * frame, frame, bits) + extra
    chunks = b"fmt " + struct.pack("<I", len(fmt)) + fmt + b"LIST" + struct.pack("<I", 3) + b"abc\0"
    chunks += b"data" + struct.pack("<I", len(samples)) + samples
    return b"RIFF" + struct.pack("<I", len(chunks) + 4) + b"WAVE" + chunks


@pytest.mark.parametrize(
    ("kind", "bits", "channels", "extra"),
    [
        (1, 8, 1, b""),
        (1, 16, 2, b""),
        (1, 24, 1, b""),
        (3, 32, 1, b""),
        (0xFFFE, 24, 2, struct.pack("<HHIH", 22, 24, 3, 1) + bytes(14)),
    ],
)
def test_closed_samples_are_silence_and_the_others_are_as_they_were(
    kind: int, bits: int, channels: int, extra: bytes
) -> None:
    frame = channels * bits // 8
    data = wav(b"\x11" * (10 * RATE * frame), kind, bits, channels, extra)
    begin = data.index(b"data") + 8
    muted = mute_wav(io.BytesIO(data), [(2.0, 3.0), (7.5, float("inf"))])
    assert muted is not None
    silence = b"\x80" if bits == 8 else b"\0"
    want = bytearray(data)
    for first, last in ((200, 301), (750, 1000)):
        want[begin + first * frame : begin + last * frame] = silence * ((last - first) * frame)
    for start in (0, 1, begin + 205 * frame + 1):
        blocks = [data[at : at + 7] for at in range(start, len(data), 7)]
        assert b"".join(muted.apply(blocks, start)) == want[start:]


def test_what_follows_the_stated_end_is_closed_too() -> None:
    # Given a file whose writer never came back to state its length
    data = wav(b"\x11\x11" * 1000).replace(struct.pack("<I", 2000), struct.pack("<I", 0))
    muted = mute_wav(io.BytesIO(data), [(2.0, float("inf"))])
    assert muted is not None
    assert not any(b"".join(muted.apply([data], 0))[-1600:])


@pytest.mark.parametrize("data", [b"", b"RIFF", b"ID3" * 100, wav(b"\x11" * 100, kind=0x55), wav(b"")[:30]])
def test_what_is_not_uncompressed_is_not_guessed_at(data: bytes) -> None:
    assert mute_wav(io.BytesIO(data), [(0.0, 1.0)]) is None
