"""Bad input fails alone, with its name and its cause; odd input is read."""

import errno
import io
import os
import struct
from pathlib import Path
from typing import BinaryIO, cast

import numpy as np
import pytest
import soundfile
from av.error import FFmpegError

from ops.testbed.bad_audio import EXPECTED, Samples, babble, make_bad_files, pcm16, wav_bytes, write_av
from spool.errors import (
    AudioError,
    AudioNotFinite,
    AudioTooLong,
    AudioUnreadable,
    SourceChanged,
    SourceForbidden,
    SourceMissing,
)
from spool.recordings.wav_header import read_wav_header
from worker.audio import Channels, open_audio
from worker.audio.ffmpeg_reader import AvReader


def read(
    path: Path, name: str | None = None, channels: Channels = "mix", max_seconds: float | None = None
) -> Samples:
    with open_audio(path, name=name, channels=channels, max_seconds=max_seconds) as stream:
        return np.concatenate(list(stream.blocks()))


@pytest.fixture(scope="module")
def bad(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    return make_bad_files(tmp_path_factory.mktemp("bad"))


@pytest.mark.parametrize("name", [name for name, error in EXPECTED.items() if error])
def test_bad_input_gives_its_error_and_the_name_it_was_given(bad: dict[str, Path], name: str) -> None:
    expected = EXPECTED[name]
    assert expected is not None
    with pytest.raises(AudioError) as caught:
        read(bad[name], name=f"box 7/{name}")
    assert type(caught.value) is expected
    assert caught.value.message.startswith(f"box 7/{name}: ")
    assert not caught.value.retryable


@pytest.mark.parametrize("name", [name for name, error in EXPECTED.items() if error is None])
def test_odd_input_is_read_whole(bad: dict[str, Path], name: str) -> None:
    expected = 10 if name == "ten_samples.wav" else 48_000
    assert len(read(bad[name])) == expected


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("empty.wav", "0 bytes"),
        ("header_only.wav", "no samples"),
        ("zero_hz.wav", "0 Hz"),
        ("truncated.m4a", "before its index"),
        ("damaged.flac", "damaged after"),
        ("nan.wav", "sample 1234 of channel 0 (0.077 s) is not a finite number (nan)"),
        ("infinite.wav", "sample 1234 of channel 0 (0.077 s) is not a finite number (-inf)"),
    ],
)
def test_messages_say_cause_and_place(bad: dict[str, Path], name: str, words: str) -> None:
    with pytest.raises(AudioError) as caught:
        read(bad[name])
    assert words in caught.value.message


@pytest.mark.parametrize(
    "name", ["promises_more.wav", "promises_less.wav", "promises_nothing.wav", "streamed.wav"]
)
def test_a_header_that_lies_about_its_length_costs_no_sample(bad: dict[str, Path], name: str) -> None:
    with open_audio(bad[name]) as stream:
        samples = np.concatenate(list(stream.blocks()))[:, 0]
        (warning,) = stream.warnings
    assert (
        "states 6.000 s, but 3.000 s are missing"
        if name == "promises_more.wav"
        else "the file contains 96000 (3.00 s)"
    ) in warning
    np.testing.assert_allclose(samples, babble(3.0), atol=1e-4)


@pytest.mark.parametrize(
    "subtype", ["PCM_U8", "PCM_16", "PCM_24", "PCM_32", "FLOAT", "DOUBLE", "ULAW", "ALAW"]
)
@pytest.mark.parametrize("promised", [0, 400, 0x7FFFFFF0, 0xFFFFFFFF])
def test_lying_headers_of_every_plain_coding(tmp_path: Path, subtype: str, promised: int) -> None:
    path = tmp_path / "a.wav"
    stereo = np.stack([babble(1.0), babble(1.0, seed=1)], axis=1)
    soundfile.write(path, stereo, 16_000, subtype=subtype)
    honest = read(path, channels="separate")
    with open(path, "rb") as file:
        header = read_wav_header(file)
    assert header is not None
    assert not header.is_wrong
    content = bytearray(path.read_bytes())
    # Tags after the audio would be proof of an honest header; the lie must be about audio.
    del content[header.data_offset + header.declared :]
    content[header.data_offset - 4 : header.data_offset] = struct.pack("<I", promised)
    path.write_bytes(content)
    np.testing.assert_array_equal(read(path, channels="separate"), honest)


def test_big_endian_wav_that_lies(tmp_path: Path) -> None:
    path = tmp_path / "a.wav"
    soundfile.write(path, babble(1.0), 16_000, subtype="PCM_16", endian="BIG")
    honest = read(path)
    content = path.read_bytes()
    at = content.index(b"data") + 4
    path.write_bytes(content[:at] + bytes(4) + content[at + 4 :])
    np.testing.assert_array_equal(read(path), honest)


def test_adpcm_with_a_length_of_zero_is_read(tmp_path: Path) -> None:
    path = tmp_path / "a.wav"
    soundfile.write(path, babble(2.0), 16_000, subtype="IMA_ADPCM")
    content = path.read_bytes()
    at = content.index(b"data") + 4
    path.write_bytes(content[:at] + bytes(4) + content[at + 4 :])
    assert len(read(path)) >= 32_000


def test_tags_after_the_audio_are_not_audio(tmp_path: Path) -> None:
    path = tmp_path / "tagged.wav"
    tags = b"LIST" + struct.pack("<I", 5000) + b"INFO" * 1250
    path.write_bytes(wav_bytes(pcm16(babble(1.0))) + tags)
    with open_audio(path) as stream:
        assert sum(map(len, stream.blocks())) == 16_000
        assert stream.warnings == []


def test_rf64_is_read_by_its_long_length(tmp_path: Path) -> None:
    path = tmp_path / "long.wav"
    soundfile.write(path, babble(1.0), 16_000, format="RF64", subtype="PCM_16")
    with open_audio(path) as stream:
        assert sum(map(len, stream.blocks())) == 16_000
        assert stream.warnings == []


def test_a_disk_that_fails_under_ffmpeg_is_told_from_a_damaged_file(tmp_path: Path) -> None:
    path = write_av(tmp_path / "a.webm", "webm", "libopus", babble(8.0, 48_000), 48_000)

    class Failing(io.FileIO):
        def read(self, size: int | None = -1) -> bytes:
            if self.tell() > 32_768:
                raise OSError(errno.EIO, "Input/output error")
            return super().read(-1 if size is None else size) or b""

    with Failing(path) as file:
        reader = AvReader(cast("BinaryIO", file), "tape.webm", "other")
        with pytest.raises(OSError, match="Input/output error") as caught:
            list(reader.blocks())
        reader.close()
    assert not isinstance(caught.value, FFmpegError)


def test_zeros_are_zeros_and_ten_samples_are_ten(bad: dict[str, Path]) -> None:
    assert not read(bad["zeros.wav"]).any()
    np.testing.assert_allclose(read(bad["ten_samples.wav"])[:, 0], babble(3.0)[:10], atol=1e-4)


def test_less_than_one_sample_at_16_khz_is_still_one(tmp_path: Path) -> None:
    path = tmp_path / "tick.wav"
    path.write_bytes(wav_bytes(pcm16(babble(1.0)[:3]), rate=768_000))
    assert len(read(path)) == 1


def test_nonsense_magnitudes_are_refused_with_their_channel(tmp_path: Path) -> None:
    sound = np.zeros((48_000, 2), dtype=np.float32)
    sound[40_000, 1] = 3e30
    soundfile.write(tmp_path / "a.wav", sound, 16_000, subtype="FLOAT")
    with pytest.raises(
        AudioNotFinite, match=r"sample 40000 of channel 1 \(2\.500 s\) is far outside the range of audio"
    ):
        read(tmp_path / "a.wav")


def test_loud_floats_are_fine(tmp_path: Path) -> None:
    soundfile.write(tmp_path / "a.wav", babble(1.0) * 1000, 16_000, subtype="FLOAT")
    assert np.abs(read(tmp_path / "a.wav")).max() > 100


def test_too_long_is_refused_as_soon_as_the_header_says_so(tmp_path: Path) -> None:
    soundfile.write(tmp_path / "a.flac", babble(3.0), 16_000)
    with pytest.raises(AudioTooLong, match=r"a\.flac: .* limit of 2 s"):
        open_audio(tmp_path / "a.flac", max_seconds=2)
    assert len(read(tmp_path / "a.flac", max_seconds=3)) == 48_000
    size = 30 * 3600 * 32_000
    (tmp_path / "day.wav").write_bytes(wav_bytes(b"", promised=size))
    os.truncate(tmp_path / "day.wav", size + 44)  # thirty hours that take no room
    with pytest.raises(AudioTooLong, match=r"day\.wav: .* limit of 24 h"):
        open_audio(tmp_path / "day.wav", max_seconds=24 * 3600)


def test_too_long_is_refused_while_reading_where_no_header_says_so(tmp_path: Path) -> None:
    path = write_av(tmp_path / "a.aac", "adts", "aac", np.zeros(16_000 * 20, dtype=np.float32), 16_000)
    with open_audio(path, max_seconds=5) as stream:
        assert stream.expected_seconds is None
        with pytest.raises(AudioTooLong):
            list(stream.blocks())
        assert stream.samples_read <= 5 * 16_000


def test_a_source_that_is_gone(tmp_path: Path) -> None:
    with pytest.raises(SourceMissing, match=r"^tape 3\.wav: "):
        open_audio(tmp_path / "gone.wav", name="tape 3.wav")


def test_what_is_no_file_is_refused_and_not_waited_for(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe.wav")
    for path in (tmp_path, tmp_path / "pipe.wav"):
        with pytest.raises(SourceMissing, match="is not a regular file"):
            open_audio(path)


def test_a_source_that_may_not_be_opened(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "a.wav").write_bytes(wav_bytes(pcm16(babble(0.1))))

    def refuse(*_args: object, **_options: object) -> object:
        raise PermissionError(13, "Permission denied")

    # A test that runs as root can open everything, so the refusal is the operating system's words alone.
    monkeypatch.setattr("builtins.open", refuse)
    with pytest.raises(SourceForbidden, match="permission denied"):
        open_audio(tmp_path / "a.wav")


def test_a_source_deleted_while_it_is_read_is_read_to_its_end(tmp_path: Path) -> None:
    path = tmp_path / "a.wav"
    path.write_bytes(wav_bytes(pcm16(babble(3.0))))
    with open_audio(path) as stream:
        path.unlink()
        assert sum(map(len, stream.blocks())) == 48_000


def test_a_source_that_grows_while_it_is_read_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "a.wav"
    path.write_bytes(wav_bytes(pcm16(babble(3.0))))
    with open_audio(path) as stream:
        blocks = stream.blocks()
        next(blocks)
        with open(path, "ab") as more:
            more.write(bytes(1000))
        with pytest.raises(SourceChanged, match=r"a\.wav: grew or shrank"):
            list(blocks)


def test_video_without_sound_says_so(tmp_path: Path) -> None:
    import av

    path = tmp_path / "mute.mp4"
    with av.open(str(path), "w") as out:
        stream = out.add_stream("mpeg4", rate=10)
        stream.width = stream.height = 32
        stream.pix_fmt = "yuv420p"
        for _ in range(5):
            frame = av.VideoFrame.from_ndarray(np.zeros((32, 32, 3), dtype=np.uint8), format="rgb24")
            out.mux(stream.encode(frame))
        out.mux(stream.encode(None))
    with pytest.raises(AudioUnreadable, match=r"mute\.mp4: the file holds no audio track"):
        open_audio(path)


def test_a_playlist_opens_nothing_else(tmp_path: Path) -> None:
    write_av(tmp_path / "secret.aac", "adts", "aac", babble(1.0), 16_000)
    for name, text in (
        ("list.mp3", "#EXTM3U\n#EXT-X-TARGETDURATION:9\n#EXTINF:1,\nsecret.aac\n#EXT-X-ENDLIST\n"),
        ("list.wav", "ffconcat version 1.0\nfile 'secret.aac'\n"),
    ):
        (tmp_path / name).write_text(text)
        with pytest.raises(AudioUnreadable):
            open_audio(tmp_path / name)


def test_descriptors_are_given_back(bad: dict[str, Path]) -> None:
    before = len(os.listdir("/dev/fd"))
    for path in bad.values():
        try:
            read(path)
        except AudioError:
            continue
    assert len(os.listdir("/dev/fd")) == before
