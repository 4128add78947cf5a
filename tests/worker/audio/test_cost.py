"""What a recording costs follows from its size: a grid of small files that claim much, in one child of 1 GB.

The child's address space is limited, so a file that takes memory out of proportion ends it; each file has to
end with samples or with the sentence of an error of ours.
"""

import json
import re
import struct
import subprocess
import sys
from collections.abc import Iterator
from itertools import product
from pathlib import Path

import numpy as np
import pytest
import soundfile

from ops.testbed.bad_audio import babble, write_av
from spool.errors import AudioTooLong, AudioUnreadable
from worker.audio import open_audio

ADDRESS_SPACE = 1 << 30
PLAIN = re.compile("^[0-9]+-(pcm|[1367])-")
DAY = 24 * 3600.0
HOST_MIB = 64
"""What a job may take beside its batch: the 35 s of each channel from which the next chunks are cut."""
FILE_SECONDS = 20.0
"""Processor time for one file of at most 200 kB."""

RATES = (
    0,
    1,
    2,
    7,
    100,
    999,
    3_999,
    4_000,
    8_000,
    44_100,
    384_000,
    5_644_800,
    6_000_001,
    2**31 - 1,
    2**32 - 1,
)
CHANNELS = (0, 1, 2, 16, 32, 33, 255, 384, 1_024, 65_535)
BODIES = (0, 7, 4_000, 160_000)
WAV_TAGS = {  # format tag: bits of a sample
    1: 16,
    2: 4,
    3: 32,
    6: 8,
    7: 8,
    0x11: 4,
    0x31: 0,
    0x45: 4,
    0x50: 0,
    0x55: 0,
    0x64: 4,
    0x161: 16,
    0x270: 0,
    0xFFFE: 24,
}

CHILD = """
import json, resource, sys, time
from pathlib import Path
import psutil
from spool.errors import SpoolError
from worker.audio import open_audio
from worker.segmentation.chunker import plan_channels

process, peak = psutil.Process(), 0

def watched(blocks):
    global peak
    for block in blocks:
        peak = max(peak, process.memory_info().rss)
        yield block

limit, folder, warm = int(sys.argv[1]), Path(sys.argv[2]), Path(sys.argv[3])
with open_audio(warm) as stream:
    list(stream.blocks())
resource.setrlimit(resource.RLIMIT_AS, (limit, limit))
for path in sorted(folder.iterdir()):
    for channels in ("mix", "separate"):
        begun, seconds, error = time.process_time(), 0.0, None
        before = peak = process.memory_info().rss
        try:
            with open_audio(path, channels=channels, max_seconds=float(sys.argv[4])) as stream:
                for chunk in plan_channels(watched(stream.blocks()), stream.channels):
                    seconds += chunk.span.core / 16000
        except SpoolError as refusal:
            error = [refusal.code, refusal.message]
        spent, grown = time.process_time() - begun, max(peak, process.memory_info().rss) - before >> 20
        line = [path.name, channels, seconds, error, grown, spent, path.stat().st_size]
        print(json.dumps(line), flush=True)
"""


def wav(tag: int, bits: int, rate: int, channels: int, body: bytes) -> bytes:
    align = max(1, channels * bits // 8) & 0xFFFF
    extra = (
        struct.pack("<H", 22) + struct.pack("<HI", bits, 3) + b"\1\0\0\0\0\0\x10\0\x80\0\0\xaa\0\x38\x9b\x71"
    )
    fmt = struct.pack("<HHIIHH", tag, channels, rate, rate * align & 0xFFFFFFFF, align, bits) + extra
    chunks = b"fmt " + struct.pack("<I", len(fmt)) + fmt + b"data" + struct.pack("<I", len(body)) + body
    return b"RIFF" + struct.pack("<I", 4 + len(chunks)) + b"WAVE" + chunks


def au(coding: int, rate: int, channels: int, body: bytes) -> bytes:
    return struct.pack(">4sIIIII", b".snd", 24, 0xFFFFFFFF, coding, rate, channels) + body


def aiff(rate: int, channels: int, body: bytes) -> bytes:
    exponent = max(rate, 1).bit_length() - 1
    extended = struct.pack(">HQ", 16383 + exponent, rate << (63 - exponent)) if rate else bytes(10)
    frames = len(body) // max(1, 2 * channels)
    common = b"COMM" + struct.pack(">IHIH", 18, channels, frames, 16) + extended
    sound = b"SSND" + struct.pack(">III", 8 + len(body), 0, 0) + body
    return b"FORM" + struct.pack(">I", 4 + len(common + sound)) + b"AIFF" + common + sound


def voc(rate: int, channels: int, body: bytes) -> bytes:
    block = struct.pack("<IBBHI", rate, 16, channels & 0xFF, 4, 0) + body
    head = b"Creative Voice File\x1a" + struct.pack("<HHH", 26, 0x0114, 0x111F)
    return head + b"\x09" + len(block).to_bytes(3, "little") + block + b"\0"


def tta(rate: int, channels: int, body: bytes) -> bytes:
    return b"TTA1" + struct.pack("<HHHII", 1, channels, 16, rate, 2**32 - 1) + bytes(4) + body


def flac(rate: int, channels: int) -> bytes:
    """A FLAC whose STREAMINFO was altered; its frames say otherwise, or refer to it."""
    return b"".join(_flac_parts(rate, channels))


def _flac_parts(rate: int, channels: int) -> Iterator[bytes]:
    info = struct.pack(">HH", 65_535, 65_535) + bytes(6)
    packed = (rate & 0xFFFFF) << 44 | (max(channels, 1) - 1 & 7) << 41 | 15 << 36 | (1 << 36) - 1
    yield b"fLaC\x80\0\0\x22" + info + struct.pack(">Q", packed) + bytes(16)
    # Frame header: 65,536 samples a block, rate and width as in STREAMINFO, constant subframes.
    for number in range(64):
        yield bytes([0xFF, 0xF9, 0xF0, (max(channels, 1) - 1 & 7) << 4, number, 0]) + bytes(
            3 * max(channels, 1)
        )


def write_grid(folder: Path) -> int:
    rng = np.random.default_rng(14)
    noise = rng.integers(0, 256, max(BODIES), np.uint8).tobytes()
    count = 0

    def write(name: str, content: bytes) -> None:
        nonlocal count
        (folder / f"{count:05d}-{name}").write_bytes(content)
        count += 1

    for (tag, bits), rate in product(WAV_TAGS.items(), RATES):
        # Every coding at every rate, with channels and lengths drawn; every channel count below for PCM.
        channels, size = int(rng.choice(CHANNELS)), int(rng.choice(BODIES))
        write(f"{tag:x}-{rate}-{channels}.wav", wav(tag, bits, rate, channels, bytes(size)))
    for rate, channels in product(RATES, CHANNELS):
        size = int(rng.choice(BODIES))
        write(f"pcm-{rate}-{channels}.wav", wav(1, 16, rate, channels, bytes(size)))
        other = noise[: int(rng.choice(BODIES))]
        form = int(rng.integers(5))
        made = [au(3, rate, channels, other), aiff(rate, channels, other), voc(rate, channels, other)]
        made += [tta(rate, channels, other), flac(rate, channels)]
        write(f"{form}-{rate}-{channels}.bin", made[form])
    return count


@pytest.mark.integration
def test_no_small_file_costs_more_than_its_size_allows(tmp_path: Path) -> None:
    (tmp_path / "grid").mkdir()
    soundfile.write(tmp_path / "warm.wav", babble(1.0), 16_000)
    count = write_grid(tmp_path / "grid")
    # What is allowed to be dear, since it is long: 32 channels of a minute and a half, 11 kHz.
    wide = np.random.default_rng(0).integers(-9_000, 9_000, (11_025 * 90, 32), np.int16)
    soundfile.write(tmp_path / "grid" / "wide.wav", wide, 11_025)
    child = subprocess.run(
        [
            sys.executable,
            "-c",
            CHILD,
            str(ADDRESS_SPACE),
            str(tmp_path / "grid"),
            str(tmp_path / "warm.wav"),
            str(DAY),
        ],
        capture_output=True,
        text=True,
        check=False,
        timeout=300,
    )
    lines = [json.loads(line) for line in child.stdout.splitlines()]
    assert child.returncode == 0, (lines[-1:], child.stderr[-2000:])
    assert len(lines) == 2 * (count + 1)
    for name, channels, seconds, error, _, spent, size in lines:
        assert error is None or error[0].startswith("audio_"), (name, error)
        assert error is None or len(error[1]) < 300, (name, error)
        # A codec may pack an hour of silence into kilobytes, which the limit of a day bounds; plain samples
        # of 8 bits at 4 kHz are the cheapest that are left, and become four at 16 kHz.
        most = 4 * size if PLAIN.search(name) else DAY * 16_000
        assert seconds * 16_000 <= most, (name, channels, seconds)
        assert spent < FILE_SECONDS, (name, channels, spent)
    for name, channels, _, _, grown, _, _ in lines:
        batch = 35 * 16_000 * 4 * (32 if "wide" in name and channels == "separate" else 1) >> 20
        assert grown <= HOST_MIB + batch, (name, channels, grown)
    read = [line for line in lines if line[3] is None]
    assert len(read) > 50


@pytest.mark.parametrize(("rate", "channels"), [(1, 16), (1, 1), (3_999, 2)])
def test_a_rate_below_speech_is_refused_by_name(tmp_path: Path, rate: int, channels: int) -> None:
    path = tmp_path / "slow.wav"
    path.write_bytes(wav(1, 16, rate, channels, bytes(96_000)))
    with pytest.raises(AudioUnreadable, match=rf"slow.wav: the sample rate is {rate} Hz, too low"):
        open_audio(path, channels="separate")


def test_more_channels_than_32_are_read_as_one_and_not_kept_apart(tmp_path: Path) -> None:
    path = tmp_path / "many.wav"
    soundfile.write(path, np.zeros((16_000, 33), np.int16), 16_000)
    with pytest.raises(AudioUnreadable, match=r"many.wav: the recording has 33 channels, and at most 32"):
        open_audio(path, channels="separate")
    with open_audio(path, channels="mix") as stream:
        assert sum(map(len, stream.blocks())) == 16_000


def test_separate_channels_count_against_the_longest_recording(tmp_path: Path) -> None:
    path = tmp_path / "call.wav"
    soundfile.write(path, np.zeros((16_000 * 4, 3), np.int16), 16_000)
    with pytest.raises(
        AudioTooLong, match=r"3 separate channels of 4 s are more audio than the limit of 10 s"
    ):
        open_audio(path, channels="separate", max_seconds=10.0)
    with open_audio(path, channels="mix", max_seconds=10.0) as stream:
        assert sum(map(len, stream.blocks())) == 64_000


def test_a_block_has_a_second_of_samples_at_most(tmp_path: Path) -> None:
    for rate in (4_000, 16_000, 48_000, 384_000):
        soundfile.write(tmp_path / "a.wav", babble(3.5, rate), rate)
        with open_audio(tmp_path / "a.wav") as stream:
            assert max(map(len, stream.blocks())) <= 16_000
    # ALAC packets of FFmpeg hold 4096 samples; at the container's pauses whole hours are due at once.
    path = write_av(tmp_path / "a.m4a", "ipod", "alac", babble(3.0, 44_100), 44_100)
    with open_audio(path) as stream:
        assert max(map(len, stream.blocks())) <= 16_000
