"""The walk through MP4's own tables gives what FFmpeg's demuxer gives, and breaks no worse."""

import struct
from pathlib import Path

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from ops.testbed.bad_audio import Samples, babble, write_av
from spool.errors import AudioError
from worker.audio import open_audio
from worker.audio.ffmpeg_reader import AvReader
from worker.audio.mp4 import Mp4Reader, NotPlainMp4, find_track


def read_all(reader: AvReader | Mp4Reader) -> Samples:
    return np.concatenate([block.samples for block in reader.blocks()])


@pytest.mark.parametrize(
    ("container", "codec", "rate", "flags"),
    [
        ("mp4", "aac", 44_100, ""),
        ("mp4", "aac", 16_000, "faststart"),
        ("ipod", "aac", 48_000, ""),
        ("ipod", "alac", 44_100, ""),
    ],
)
@pytest.mark.parametrize("channels", [1, 2])
def test_the_two_ways_agree_on_every_sample(
    tmp_path: Path, container: str, codec: str, rate: int, flags: str, channels: int
) -> None:
    sound = np.stack([babble(5.0, rate, seed) for seed in range(channels)], axis=1)
    options = {"movflags": flags} if flags else {}
    path = write_av(tmp_path / "a.m4a", container, codec, sound, rate, **options)
    with open(path, "rb", buffering=0) as file:
        ours = Mp4Reader(file, "a.m4a")
        facts = (ours.rate, ours.channels, ours.expected_frames)
        mine = read_all(ours)
        theirs = AvReader(file, "a.m4a", "mp4")
        assert facts == (theirs.rate, theirs.channels, theirs.expected_frames)
        np.testing.assert_array_equal(mine, read_all(theirs))
        assert ours.warnings == theirs.warnings == []


def test_what_is_not_plain_is_left_to_ffmpeg(tmp_path: Path) -> None:
    fragmented = write_av(
        tmp_path / "f.mp4", "mp4", "aac", babble(4.0), 16_000, movflags="frag_keyframe+empty_moov"
    )
    opus = write_av(tmp_path / "o.mp4", "mp4", "libopus", babble(4.0, 48_000), 48_000)
    for path in (fragmented, opus):
        with open(path, "rb", buffering=0) as file, pytest.raises(NotPlainMp4):
            Mp4Reader(file, path.name)
        with open_audio(path) as stream:
            assert sum(map(len, stream.blocks())) == pytest.approx(64_000, abs=2100)
            assert stream.source_format.startswith("mov/")


def test_a_trimmed_end_stays_trimmed(tmp_path: Path) -> None:
    path = write_av(tmp_path / "a.m4a", "mp4", "aac", babble(6.0), 16_000)
    content = bytearray(path.read_bytes())
    at = content.rindex(b"elst") + 12
    assert struct.unpack_from(">I", content, at)[0] == pytest.approx(6000, abs=100)
    struct.pack_into(">I", content, at, 4000)
    path.write_bytes(content)
    with open_audio(path) as stream:
        assert sum(map(len, stream.blocks())) == pytest.approx(64_000, abs=1100)
        assert stream.source_format == "mp4/aac"


def test_a_jump_in_the_times_is_silence(tmp_path: Path) -> None:
    # A whole number of packets, so that the table of times has a single row.
    path = write_av(tmp_path / "a.m4a", "mp4", "aac", babble(6.016), 16_000)
    content = bytearray(path.read_bytes())
    with open(path, "rb") as file:
        track = find_track(file)
        assert track is not None
        packets = list(track.packets())
    # One packet of the table is said to last two seconds longer: the sound after it comes later.
    at = content.rindex(b"stts")
    rows, before = struct.unpack_from(">II", content, at + 8)
    assert (rows, before) == (1, len(packets))
    half = before // 2
    pairs = [(half, 1024), (1, 1024 + 32_000), (before - half - 1, 1024)]
    table = struct.pack(">II", 0, len(pairs)) + b"".join(struct.pack(">II", *pair) for pair in pairs)
    box = struct.pack(">I", len(table) + 8) + b"stts" + table
    grown = content[: at - 4] + box + content[at - 4 + 24 :]
    for kind in (b"moov", b"trak", b"mdia", b"minf", b"stbl"):
        place = grown.rindex(kind) - 4
        struct.pack_into(">I", grown, place, struct.unpack_from(">I", grown, place)[0] + len(box) - 24)
    header = grown.rindex(b"mdhd") + 4 + 16
    struct.pack_into(">I", grown, header, struct.unpack_from(">I", grown, header)[0] + 32_000)
    edit = grown.rindex(b"elst") + 12
    struct.pack_into(">I", grown, edit, struct.unpack_from(">I", grown, edit)[0] + 2000)
    path.write_bytes(grown)
    with open_audio(path) as stream:
        samples = np.concatenate(list(stream.blocks()))
        assert stream.source_format == "mp4/aac"
        assert stream.warnings == ["1 pauses in the container's clock (2.00 s) were read as silence"]
    assert len(samples) == pytest.approx(8 * 16_000, abs=1500)
    # The packet that lasts too long is number `half`; the run-up of 1024 samples is not in the output.
    assert not samples[half * 1024 : half * 1024 + 32_000].any()
    assert samples[half * 1024 - 1024 : half * 1024].any()
    assert samples[half * 1024 + 32_000 : half * 1024 + 33_024].any()


@settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.data())
def test_damage_anywhere_in_the_index_gives_an_error_of_ours_or_sound(
    tmp_path: Path, data: st.DataObject
) -> None:
    source = tmp_path / "whole.m4a"
    if not source.exists():
        write_av(source, "mp4", "aac", babble(1.0), 16_000)
    content = bytearray(source.read_bytes())
    moov = content.rindex(b"moov")
    for _ in range(data.draw(st.integers(1, 6))):
        content[data.draw(st.integers(moov, len(content) - 1))] = data.draw(st.sampled_from([0, 1, 127, 255]))
    path = tmp_path / "broken.m4a"
    path.write_bytes(content)
    try:
        with open_audio(path, max_seconds=60) as stream:
            assert all(np.isfinite(block).all() for block in stream.blocks())
    except AudioError as error:
        message = error.message
    else:
        message = "broken.m4a: read"
    assert message.startswith("broken.m4a: ")
