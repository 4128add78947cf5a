"""Recordings that were cut off keep their good audio, and say how much is missing where it is stated."""

import struct
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import soundfile

from ops.testbed.bad_audio import Samples, babble, pcm16, wav_bytes, write_av
from spool.errors import AudioTruncated
from worker.audio import open_audio
from worker.audio.stated_length import EXACT, Length

SECONDS = 8.0
RATES = {8_000: babble(SECONDS, 8_000), 16_000: babble(SECONDS), 48_000: babble(SECONDS, 48_000)}


def by_soundfile(form: str, subtype: str, rate: int = 16_000) -> Callable[[Path], None]:
    return lambda path: soundfile.write(str(path), RATES[rate], rate, format=form, subtype=subtype)


def by_av(
    container: str, codec: str, rate: int = 16_000, options: dict[str, str] | None = None
) -> Callable[[Path], None]:
    def write(path: Path) -> None:
        write_av(path, container, codec, RATES[rate], rate, **(options or {}))

    return write


FAST = {"movflags": "faststart"}
STATED = {
    "wav": by_soundfile("WAV", "PCM_16"),
    "wav-float": by_soundfile("WAV", "FLOAT"),
    "wav-ulaw": by_soundfile("WAV", "ULAW", 8_000),
    "wav-ima-adpcm": by_soundfile("WAV", "IMA_ADPCM"),
    "wav-ms-adpcm": by_soundfile("WAV", "MS_ADPCM"),
    "wav-gsm": by_soundfile("WAV", "GSM610", 8_000),
    "wav-mp3": by_av("wav", "libmp3lame"),
    "rf64": by_soundfile("RF64", "PCM_16"),
    "w64": by_soundfile("W64", "PCM_16"),
    "aiff": by_soundfile("AIFF", "PCM_16"),
    "aifc-ulaw": by_soundfile("AIFF", "ULAW"),
    "aifc-ima": by_soundfile("AIFF", "IMA_ADPCM"),
    "caf": by_soundfile("CAF", "PCM_16"),
    "caf-alac": by_soundfile("CAF", "ALAC_16"),
    "au": by_soundfile("AU", "PCM_16"),
    "au-ulaw": by_soundfile("AU", "ULAW", 8_000),
    "nist": by_soundfile("NIST", "PCM_16"),
    "flac": by_soundfile("FLAC", "PCM_16"),
    "mp3-xing": by_soundfile("MP3", "MPEG_LAYER_III"),
    "mp3-xing-by-ffmpeg": by_av("mp3", "libmp3lame"),
    "m4a": by_av("ipod", "aac", options=FAST),
    "m4a-alac": by_av("ipod", "alac", options=FAST),
    "mov": by_av("mov", "pcm_s16le", options=FAST),
    "webm": by_av("webm", "libopus", 48_000),
    "mka": by_av("matroska", "aac"),
    "mka-flac": by_av("matroska", "flac"),
    "wma": by_av("asf", "wmav2"),
    "wavpack": by_av("wv", "wavpack"),
    "tta": by_av("tta", "tta"),
    "ast": by_av("ast", "pcm_s16be_planar"),
}
ENDED = {
    "ogg-vorbis": by_soundfile("OGG", "VORBIS"),
    "ogg-opus": by_soundfile("OGG", "OPUS", 48_000),
    "ogg-flac": by_av("ogg", "flac"),
    "avi": by_av("avi", "pcm_s16le"),
}
UNSTATED = {
    "mp3-without-header": by_av("mp3", "libmp3lame", options={"write_xing": "0"}),
    "mp2": by_av("mp2", "mp2"),
    "adts": by_av("adts", "aac"),
    "ac3": by_av("ac3", "ac3", 48_000),
    "mpegts": by_av("mpegts", "aac", 48_000),
    "ircam": by_soundfile("IRCAM", "PCM_16"),
}


def read(path: Path) -> tuple[Samples, Length, list[str]]:
    with open_audio(path) as stream:
        samples = np.concatenate(list(stream.blocks()))[:, 0]
        return samples, stream.length, stream.warnings


def cut_at_60(path: Path) -> Path:
    content = path.read_bytes()
    short = path.with_name("cut")
    short.write_bytes(content[: len(content) * 6 // 10])
    return short


@pytest.mark.parametrize("name", STATED)
def test_what_is_missing_is_stated(tmp_path: Path, name: str) -> None:
    STATED[name](tmp_path / "a")
    sound, length, warnings = read(tmp_path / "a")
    assert (length.complete, length.missing_seconds, warnings) == (True, 0.0, [])
    assert length.expected_seconds == pytest.approx(SECONDS, abs=0.1)

    good, length, warnings = read(cut_at_60(tmp_path / "a"))
    assert length.complete is False
    assert length.expected_seconds == pytest.approx(SECONDS, abs=0.1)
    seconds = len(good) / 16_000
    assert length.expected_seconds is not None
    assert length.missing_seconds == pytest.approx(length.expected_seconds - seconds, abs=0.001)
    # A codec's last packet is lost with its end; WavPack's and TTA's are a second long and more.
    packet = {"wavpack": 2.0, "tta": 1.1}.get(name, 0.4)
    assert 0.6 * SECONDS - packet < seconds < 0.6 * SECONDS + 0.5
    assert f"{length.missing_seconds:.3f} s are missing" in warnings[-1]
    assert not any("declares" in warning for warning in warnings), "one shortfall, said once"
    settled = len(good) - 8_000
    # Two decoders of Microsoft's ADPCM round differently.
    np.testing.assert_allclose(good[:settled], sound[:settled], atol=0.02 if "ms-adpcm" in name else 0)


@pytest.mark.parametrize("name", ENDED)
def test_a_container_without_its_end_is_cut_off(tmp_path: Path, name: str) -> None:
    ENDED[name](tmp_path / "a")
    assert read(tmp_path / "a")[1] == Length(True, None, None)
    good, length, warnings = read(cut_at_60(tmp_path / "a"))
    assert length == Length(False, None, None)
    assert len(good) > (0.6 * SECONDS - 1.5) * 16_000
    assert "does not state how much is missing" in warnings[-1]


@pytest.mark.parametrize("name", UNSTATED)
def test_a_file_that_states_no_length_says_so(tmp_path: Path, name: str) -> None:
    UNSTATED[name](tmp_path / "a")
    assert read(tmp_path / "a")[1] == Length(None, None, None)
    good, length, _ = read(cut_at_60(tmp_path / "a"))
    assert length == Length(None, None, None)
    assert len(good) > (0.6 * SECONDS - 0.5) * 16_000


def test_fragments_that_end_too_early_are_cut_off(tmp_path: Path) -> None:
    options = {"movflags": "frag_keyframe+empty_moov", "frag_duration": "1000000"}
    write_av(tmp_path / "a", "mp4", "aac", RATES[16_000], 16_000, **options)
    assert read(tmp_path / "a")[1].complete is None
    assert read(cut_at_60(tmp_path / "a"))[1] == Length(False, None, None)


def test_an_mp4_whose_index_was_cut_off_has_nothing_to_keep(tmp_path: Path) -> None:
    write_av(tmp_path / "a", "ipod", "aac", RATES[16_000], 16_000)
    with pytest.raises(AudioTruncated, match="before its index"):
        open_audio(cut_at_60(tmp_path / "a"))


def test_one_missing_sample_of_plain_audio_counts(tmp_path: Path) -> None:
    data = pcm16(RATES[8_000])
    path = tmp_path / "a.wav"
    lost = 2 * round(2 * EXACT * 8_000)
    path.write_bytes(wav_bytes(data[:-lost], promised=len(data), rate=8_000))
    length = read(path)[1]
    assert length.complete is False
    assert length.expected_seconds is not None
    assert length.missing_seconds == pytest.approx(2 * EXACT, abs=1e-9)


@pytest.mark.parametrize("promised", [0, 0x7FFFFFF0, 0xFFFFFFFF, 1000])
def test_what_a_recorder_could_not_fill_in_states_nothing(tmp_path: Path, promised: int) -> None:
    (tmp_path / "a.wav").write_bytes(wav_bytes(pcm16(babble(1.0)), promised=promised))
    assert read(tmp_path / "a.wav")[1] == Length(None, None, None)


def test_what_is_missing_is_known_before_plain_audio_is_decoded(tmp_path: Path) -> None:
    for form in ("WAV", "AIFF", "AU"):
        by_soundfile(form, "PCM_16")(tmp_path / "a")
        with open_audio(cut_at_60(tmp_path / "a")) as stream:
            assert stream.known_length.complete is False
            assert stream.known_length.missing_seconds == pytest.approx(0.4 * SECONDS, abs=0.01)


def test_a_header_without_a_sample_is_cut_off(tmp_path: Path) -> None:
    path = tmp_path / "a.wav"
    path.write_bytes(wav_bytes(b"", promised=32_000))
    with pytest.raises(AudioTruncated, match="before its first sample"):
        read(path)


@pytest.mark.parametrize(
    "name", ["wav", "aiff", "caf-alac", "au", "w64", "flac", "mp3-xing", "wma", "mka", "avi"]
)
def test_no_header_however_damaged_breaks_the_reading_of_its_length(tmp_path: Path, name: str) -> None:
    from worker.audio.stated_length import read_stated_length

    (STATED | ENDED)[name](tmp_path / "a")
    content = (tmp_path / "a").read_bytes()[:4096]
    for seed in range(40):
        random = np.random.default_rng(seed)
        broken = bytearray(content[: random.integers(12, len(content))])
        for at in random.integers(12, len(broken), 8):
            broken[at] = random.integers(0, 256)
        struct.pack_into(
            "<I", broken, int(random.integers(0, len(broken) - 4)), int(random.integers(0, 1 << 32))
        )
        broken[:12] = content[:12]
        (tmp_path / "broken").write_bytes(broken)
        with (tmp_path / "broken").open("rb") as file:
            stated = read_stated_length(file)
        assert stated.seconds is None or stated.seconds >= 0
