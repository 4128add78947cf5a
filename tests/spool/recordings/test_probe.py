"""A recording is known by its content: every container that can be read, and nothing else."""

from pathlib import Path

import numpy as np
import pytest

from ops.testbed.bad_audio import babble, write_av
from spool.errors import SourceForbidden
from spool.recordings import (
    EMPTY,
    HIDDEN,
    NOT_AUDIO,
    PROBE_BYTES,
    has_recordings_name,
    is_audio,
    reason_to_skip,
    walk,
)
from tests.worker.audio.test_truncated import ENDED, RATES, STATED, UNSTATED
from worker.audio import open_audio


@pytest.mark.parametrize("name", [*STATED, *ENDED, *UNSTATED])
def test_every_container_is_known_by_its_first_kilobytes(tmp_path: Path, name: str) -> None:
    (STATED | ENDED | UNSTATED)[name](tmp_path / "a")
    with (tmp_path / "a").open("rb") as file:
        assert is_audio(file.read(PROBE_BYTES))


@pytest.mark.parametrize(
    ("container", "codec", "rate"),
    [
        ("mp4", "aac", 16_000),
        ("3gp", "aac", 16_000),
        ("flv", "libmp3lame", 44_100),
        ("rm", "real_144", 8_000),
        ("nut", "pcm_s16le", 16_000),
        ("amr", "libopencore_amrnb", 8_000),
        ("mpeg", "mp2", 48_000),
        ("latm", "aac", 16_000),
        ("eac3", "eac3", 48_000),
    ],
)
def test_other_containers_of_ffmpeg_are_known(tmp_path: Path, container: str, codec: str, rate: int) -> None:
    sound = RATES.get(rate, babble(2.0, rate))
    path = write_av(tmp_path / "a", container, codec, sound, rate)
    assert is_audio(path.read_bytes()[:PROBE_BYTES])
    with open_audio(path) as stream:
        assert sum(map(len, stream.blocks())) > 16_000


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"This is a letter, and no recording at all.\n" * 100,
        b"%PDF-1.7\n" + bytes(4000),
        b"\xff\xd8\xff\xe0\x00\x10JFIF" + bytes(4000),
        b"\x89PNG\r\n\x1a\n" + bytes(4000),
        b"PK\x03\x04" + bytes(4000),
        b"RIFF\x00\x10\x00\x00WEBPVP8 " + bytes(4000),
        b"\x00\x00\x00\x18ftypheic" + bytes(4000),
        b"\xff\xfe" + "Ein Brief in UTF-16".encode("utf-16-le") * 50,
        b'{"source": "file:///a.wav"}\n' * 50,
        bytes(8192),
        b"\xff" * 8192,
    ],
)
def test_what_is_no_audio_is_not_taken_for_it(content: bytes) -> None:
    assert not is_audio(content[:PROBE_BYTES])


def test_noise_is_almost_never_taken_for_audio() -> None:
    blocks = np.random.default_rng(1).bytes(3000 * PROBE_BYTES)
    taken = sum(is_audio(blocks[at : at + PROBE_BYTES]) for at in range(0, len(blocks), PROBE_BYTES))
    assert taken <= 2


@pytest.mark.parametrize("suffix", ["w64", "ac3", "dss", "m4v", "mts", "wave", "aifc", "WAV", "3ga"])
def test_a_recordings_name_is_enough(suffix: str) -> None:
    assert has_recordings_name(f"reel.{suffix}")
    assert reason_to_skip(f"a/reel.{suffix}", bytes) is None


def test_the_reasons() -> None:
    assert reason_to_skip("b/._reel.wav", bytes) == HIDDEN
    assert reason_to_skip("b/reel", bytes) == EMPTY
    assert reason_to_skip("b/reel.txt", lambda: b"a letter") == NOT_AUDIO
    assert reason_to_skip("b/reel.txt", lambda: b"fLaC") is None


def test_a_folder_is_walked_in_order_with_a_reason_for_all_it_leaves_out(tmp_path: Path) -> None:
    for name, content in {
        "b.txt": b"x",
        "a/2": b"OggS",
        "a/1.wav": b"",
        "a.wav": b"",
        ".x/y.wav": b"",
    }.items():
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_bytes(content)
    walked = [(path.relative_to(tmp_path).as_posix(), reason) for path, reason in walk(tmp_path)]
    assert walked == [(".x", HIDDEN), ("a.wav", None), ("b.txt", NOT_AUDIO), ("a/1.wav", None), ("a/2", None)]


def test_a_folder_below_that_cannot_be_listed_is_named_and_hides_no_other(tmp_path: Path) -> None:
    (tmp_path / "a.wav").touch()
    (tmp_path / "b").mkdir()
    (tmp_path / "c").mkdir()
    (tmp_path / "c" / "d.wav").touch()
    walking = walk(tmp_path)
    next(walking)
    (tmp_path / "b").rmdir()
    assert list(walking) == [
        (tmp_path / "b", "this folder cannot be listed: No such file or directory"),
        (tmp_path / "c" / "d.wav", None),
    ]
    with pytest.raises(SourceForbidden, match="cannot be listed"):
        next(walk(tmp_path / "b"))
