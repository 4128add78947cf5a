"""Every container is read whole, by its content, at 16 kHz."""

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import av
import numpy as np
import pytest
import soundfile
from av.audio.plane import AudioPlane
from hypothesis import given, settings
from hypothesis import strategies as st

from ops.testbed.bad_audio import Samples, babble, pcm16, wav_bytes, write_av
from spool.errors import AudioUnreadable
from worker.audio import SAMPLE_RATE, Channels, open_audio
from worker.audio.resample import Resampler

SECONDS = 3.0


def tone(rate: int, seconds: float = SECONDS, hertz: float = 440.0, channels: int = 1) -> Samples:
    wave = 0.4 * np.sin(2 * np.pi * hertz * np.arange(round(rate * seconds)) / rate)
    return np.tile(wave[:, None], (1, channels)).astype(np.float32)


def read(path: Path, channels: Channels = "mix") -> Samples:
    with open_audio(path, channels=channels) as stream:
        samples = np.concatenate(list(stream.blocks()))
        assert stream.samples_read == len(samples)
        assert samples.shape[1] == stream.channels
        assert samples.dtype == np.float32
    return samples


def pitch(samples: Samples) -> float:
    spectrum = np.abs(np.fft.rfft(samples * np.hanning(len(samples))))
    return float(np.argmax(spectrum) * SAMPLE_RATE / len(samples))


@pytest.mark.parametrize(
    ("name", "subtype", "rate"),
    [
        ("a.wav", "PCM_16", 44_100),
        ("a.wav", "PCM_U8", 11_025),
        ("a.wav", "PCM_24", 96_000),
        ("a.wav", "PCM_32", 16_000),
        ("a.wav", "FLOAT", 22_050),
        ("a.wav", "DOUBLE", 48_000),
        ("a.wav", "ULAW", 8_000),
        ("a.wav", "ALAW", 8_000),
        ("a.wav", "IMA_ADPCM", 16_000),
        ("a.flac", "PCM_16", 16_000),
        ("a.flac", "PCM_24", 48_000),
        ("a.ogg", "VORBIS", 44_100),
        ("a.ogg", "OPUS", 48_000),
        ("a.mp3", "MPEG_LAYER_III", 44_100),
        ("a.mp3", "MPEG_LAYER_III", 16_000),
        ("a.aiff", "PCM_16", 32_000),
        ("a.au", "PCM_16", 8_000),
    ],
)
def test_formats_of_soundfile_keep_length_pitch_and_level(
    tmp_path: Path, name: str, subtype: str, rate: int
) -> None:
    soundfile.write(tmp_path / name, tone(rate), rate, subtype=subtype)
    samples = read(tmp_path / name)[:, 0]
    assert len(samples) == pytest.approx(SECONDS * SAMPLE_RATE, abs=1200)
    assert pitch(samples) == pytest.approx(440.0, abs=1.0)
    assert np.abs(samples[8000:40_000]).max() == pytest.approx(0.4, abs=0.03)


@pytest.mark.parametrize(
    ("container", "codec", "rate", "channels"),
    [
        ("mp4", "aac", 44_100, 2),
        ("mp4", "aac", 16_000, 1),
        ("ipod", "alac", 48_000, 1),
        ("webm", "libopus", 48_000, 2),
        ("matroska", "aac", 44_100, 1),
        ("adts", "aac", 22_050, 1),
        ("mpegts", "aac", 48_000, 2),
        ("avi", "pcm_s16le", 16_000, 1),
    ],
)
def test_formats_of_pyav_keep_length_pitch_and_level(
    tmp_path: Path, container: str, codec: str, rate: int, channels: int
) -> None:
    path = write_av(tmp_path / "a.bin", container, codec, tone(rate, channels=channels), rate)
    samples = read(path)[:, 0]
    assert len(samples) == pytest.approx(SECONDS * SAMPLE_RATE, abs=1800)
    assert pitch(samples) == pytest.approx(440.0, abs=1.0)
    assert np.abs(samples[8000:40_000]).max() == pytest.approx(0.4, abs=0.05)


def test_a_gxf_of_a_broadcaster_is_read_to_its_end(tmp_path: Path) -> None:
    path, sound = tmp_path / "a.gxf", tone(48_000)[:, 0]
    with av.open(str(path), "w", format="gxf") as container:
        film = container.add_stream("mpeg2video", rate=25)
        film.width, film.height, film.pix_fmt = 720, 576, "yuv420p"
        track = container.add_stream("pcm_s16le", rate=48_000, layout="mono")
        for number, start in enumerate(range(0, len(sound), 1920)):
            picture = av.VideoFrame.from_ndarray(np.zeros((864, 720), np.uint8), format="yuv420p")
            picture.pts = number
            container.mux(film.encode(picture))
            some = (sound[None, start : start + 1920] * 32_767).astype(np.int16)
            frame = av.AudioFrame.from_ndarray(some, format="s16", layout="mono")
            frame.rate, frame.pts = 48_000, start
            container.mux(track.encode(frame))
        container.mux(film.encode(None))
        container.mux(track.encode(None))
    samples = read(path)[:, 0]
    # Packets of one size, the last padded; FFmpeg calls it an error that none follows.
    assert SECONDS * SAMPLE_RATE <= len(samples) < (SECONDS + 1) * SAMPLE_RATE
    assert pitch(samples[: round(SECONDS * SAMPLE_RATE)]) == pytest.approx(440.0, abs=1.0)
    content = path.read_bytes()
    header = content.index(b"\0\0\0\0\1\xbf", len(content) // 2)
    path.write_bytes(content[:header] + b"\xff" * 16 + content[header + 16 :])
    with pytest.raises(AudioUnreadable, match=r"a\.gxf: the container is damaged after \d"):
        read(path)


def test_the_content_decides_and_not_the_name(tmp_path: Path) -> None:
    soundfile.write(tmp_path / "real.flac", tone(16_000), 16_000)
    lying = tmp_path / "song.mp3"
    (tmp_path / "real.flac").rename(lying)
    with open_audio(lying) as stream:
        assert stream.source_format == "FLAC/PCM_16"
    raw = tmp_path / "take.raw"
    raw.write_bytes(wav_bytes(pcm16(tone(16_000)[:, 0])))
    assert len(read(raw)) == 48_000


def test_facts_about_the_source(tmp_path: Path) -> None:
    soundfile.write(tmp_path / "a.wav", tone(44_100, channels=2), 44_100)
    with open_audio(tmp_path / "a.wav", channels="separate") as stream:
        assert (stream.source_rate, stream.source_channels, stream.channels) == (44_100, 2, 2)
        assert stream.source_format == "WAV/PCM_16"
        assert stream.sample_rate == 16_000
        assert stream.expected_seconds == pytest.approx(3.0)
        assert stream.warnings == []


def test_mix_is_the_mean_and_separate_keeps_each(tmp_path: Path) -> None:
    nine = np.stack([babble(1.0, seed=channel) for channel in range(9)], axis=1)
    soundfile.write(tmp_path / "nine.wav", nine, 16_000, subtype="FLOAT")
    np.testing.assert_allclose(read(tmp_path / "nine.wav")[:, 0], nine.mean(axis=1), atol=1e-7)
    np.testing.assert_array_equal(read(tmp_path / "nine.wav", "separate"), nine)


@pytest.mark.parametrize("rate", [4_000, 11_025, 192_000, 768_000])
def test_odd_rates_give_the_length_that_they_say(tmp_path: Path, rate: int) -> None:
    seconds = 2
    data = pcm16(np.full(rate * seconds, 0.25, dtype=np.float32))
    path = tmp_path / "odd.wav"
    path.write_bytes(wav_bytes(data, rate=rate))
    samples = read(path)
    assert len(samples) == pytest.approx(seconds * SAMPLE_RATE, abs=2)
    assert samples[len(samples) // 2, 0] == pytest.approx(0.25, abs=0.01)


def test_a_click_stays_at_its_time_through_the_resampler(tmp_path: Path) -> None:
    click = np.zeros(44_100 * 2, dtype=np.float32)
    click[44_100] = 0.9
    soundfile.write(tmp_path / "click.wav", click, 44_100)
    samples = read(tmp_path / "click.wav")[:, 0]
    assert int(np.argmax(np.abs(samples))) == pytest.approx(16_000, abs=1)


def test_joined_mp3s_are_read_to_the_last_word(tmp_path: Path) -> None:
    soundfile.write(tmp_path / "a.mp3", babble(2.0), 16_000)
    one = (tmp_path / "a.mp3").read_bytes()
    (tmp_path / "two.mp3").write_bytes(one + one)
    assert len(read(tmp_path / "two.mp3")) == pytest.approx(4 * SAMPLE_RATE, abs=2500)


def test_joined_oggs_are_read_to_the_last_word(tmp_path: Path) -> None:
    soundfile.write(tmp_path / "a.ogg", babble(2.0), 16_000)
    soundfile.write(tmp_path / "b.ogg", babble(1.0), 16_000)
    joined = tmp_path / "joined.ogg"
    joined.write_bytes((tmp_path / "a.ogg").read_bytes() + (tmp_path / "b.ogg").read_bytes())
    assert len(read(joined)) == pytest.approx(3 * SAMPLE_RATE, abs=1000)


def test_flac_of_unknown_length_is_read_whole(tmp_path: Path) -> None:
    soundfile.write(tmp_path / "a.flac", babble(3.0), 16_000)
    content = bytearray((tmp_path / "a.flac").read_bytes())
    content[21] &= 0xF0  # STREAMINFO's 36 bits of total samples
    content[22:26] = bytes(4)
    (tmp_path / "a.flac").write_bytes(content)
    assert len(read(tmp_path / "a.flac")) == 48_000


def test_a_pause_in_the_clock_of_a_webm_is_silence_of_that_length(tmp_path: Path) -> None:
    whole = write_av(tmp_path / "whole.webm", "webm", "libopus", tone(48_000, 6.0), 48_000)
    gappy = tmp_path / "gappy.webm"
    _drop_packets(whole, gappy, 2.0, 4.0)
    with open_audio(gappy) as stream:
        samples = np.concatenate(list(stream.blocks()))[:, 0]
        warnings = stream.warnings
    assert len(samples) == pytest.approx(6 * SAMPLE_RATE, abs=1500)
    assert np.abs(samples[40_000:56_000]).max() == 0.0
    assert np.abs(samples[72_000:88_000]).max() > 0.3
    assert any("read as silence" in warning for warning in warnings)


def _drop_packets(source: Path, target: Path, first: float, last: float) -> None:
    import av

    with av.open(str(source)) as given, av.open(str(target), "w", format="webm") as out:
        stream = out.add_stream_from_template(given.streams.audio[0])
        for packet in given.demux(given.streams.audio[0]):
            if packet.pts is None or first <= float(packet.pts * packet.time_base) < last:
                continue
            packet.stream = stream
            out.mux(packet)


@settings(max_examples=25, deadline=None)
@given(
    rate=st.sampled_from([8_000, 11_025, 16_000, 44_100, 48_000]),
    cuts=st.lists(st.integers(1, 4_000), min_size=1, max_size=12),
)
def test_resampling_gives_each_sample_once_whatever_the_blocks(rate: int, cuts: list[int]) -> None:
    sound = babble(0.5, rate)[:, None]
    resampler = Resampler(rate, 1)
    parts: list[Any] = []
    at = 0
    for size in cuts:
        parts += resampler.push(sound[at : at + size])
        at += size
    parts += [*resampler.push(sound[at:]), *resampler.finish()]
    once = Resampler(rate, 1)
    whole = np.concatenate([*once.push(sound), *once.finish()])
    np.testing.assert_allclose(np.concatenate(parts), whole, atol=1e-5)
    assert len(whole) == pytest.approx(0.5 * SAMPLE_RATE, abs=1)


def test_reading_twice_gives_the_same_samples(tmp_path: Path) -> None:
    path = write_av(tmp_path / "a.m4a", "mp4", "aac", babble(4.0, 44_100), 44_100)
    np.testing.assert_array_equal(read(path), read(path))


@pytest.mark.integration
def test_no_reader_writes_to_the_terminal(tmp_path: Path) -> None:
    soundfile.write(tmp_path / "a.mp3", babble(2.0), 16_000)
    content = (tmp_path / "a.mp3").read_bytes()
    (tmp_path / "damaged.mp3").write_bytes(content[:3000] + b"garbage" * 500 + content[3000:])
    write_av(tmp_path / "a.m4a", "mp4", "aac", babble(2.0), 16_000)
    cut = (tmp_path / "a.m4a").read_bytes()
    (tmp_path / "cut.m4a").write_bytes(cut[: len(cut) // 2])
    program = (
        "import sys, pathlib\n"
        "from spool.errors import AudioError\n"
        "from worker.audio import open_audio\n"
        "for name in sys.argv[1:]:\n"
        "    try:\n"
        "        with open_audio(pathlib.Path(name)) as stream:\n"
        "            list(stream.blocks())\n"
        "    except AudioError:\n"
        "        pass\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", program, *(str(path) for path in sorted(tmp_path.iterdir()))],
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
        env={**os.environ, "PYTHONPATH": str(Path(__file__).parents[3])},
    )
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")


@pytest.mark.parametrize(
    ("container", "codec", "name"), [("mp4", "aac", "a.m4a"), ("matroska", "flac", "a.mkv")]
)
def test_eight_channels_that_lie_apart_are_all_read(
    tmp_path: Path, container: str, codec: str, name: str
) -> None:
    levels = np.arange(1, 9) / 16
    path = tmp_path / name
    with av.open(str(path), "w", format=container) as out:
        stream: Any = out.add_stream(codec, rate=16_000, layout="7.1")
        kind = stream.codec_context.format.name
        size = stream.codec_context.frame_size or 1024
        tone = np.sin(2 * np.pi * 220 * np.arange(32_000) / 16_000)
        for at in range(0, 32_000, size):
            frame = av.AudioFrame(format=kind, layout="7.1", samples=len(tone[at : at + size]))
            frame.sample_rate, frame.pts = 16_000, at
            piece = tone[at : at + size, None] * levels
            if frame.format.is_planar:
                for channel in range(8):
                    AudioPlane(frame, channel).update(piece[:, channel].astype(np.float32).tobytes())
            else:
                AudioPlane(frame, 0).update((piece * 32767).astype(np.int16).tobytes())
            out.mux(stream.encode(frame))
        out.mux(stream.encode(None))
    with open_audio(path, channels="separate") as stream_:
        samples = np.concatenate(list(stream_.blocks()))
    assert samples.shape[1] == 8
    heard = np.sqrt(2 * np.square(samples[8_000:24_000], dtype=np.float64).mean(axis=0))
    lfe = 3  # low frequencies alone
    np.testing.assert_allclose(np.delete(heard, lfe), np.delete(levels, lfe), rtol=0.1)
    with open_audio(path) as mixed:
        assert sum(map(len, mixed.blocks())) == len(samples)


def test_amr_with_frames_for_silence_is_read_whole(tmp_path: Path) -> None:
    """Telephones send a description of the noise (DTX, 3GPP TS 26.093) while nobody speaks."""
    path, rate = tmp_path / "call.amr", 8_000
    loud = tone(rate)[:, 0]
    with av.open(str(path), "w", format="amr") as out:
        stream: Any = out.add_stream("libopencore_amrnb", rate=rate, layout="mono", options={"dtx": "1"})
        for at, block in enumerate(np.split(np.concatenate([loud, np.zeros_like(loud), loud]), 450)):
            frame = av.AudioFrame.from_ndarray((block[None] * 32767).astype(np.int16), "s16", "mono")
            frame.sample_rate, frame.pts = rate, at * len(block)
            out.mux(stream.encode(frame))
        out.mux(stream.encode(None))
    with open_audio(path) as audio:
        samples = np.concatenate(list(audio.blocks()))[:, 0]
        assert audio.warnings == []
    assert len(samples) / SAMPLE_RATE == pytest.approx(3 * SECONDS, abs=0.1)
    levels = [float(np.sqrt(np.mean(part**2))) for part in np.array_split(samples, 9)]
    assert all((level > 0.1) == (at not in (4, 5)) for at, level in enumerate(levels) if at != 3)


def test_amr_wb_with_frames_for_silence_is_read_whole(tmp_path: Path) -> None:
    speech, noise, nothing = b"\x04" + bytes(17), b"\x4c" + bytes(5), b"\x7c"  # RFC 4867, 5.3
    path = tmp_path / "call.awb"
    path.write_bytes(b"#!AMR-WB\n" + (speech * 25 + noise + (nothing * 7 + noise) * 8 + speech * 25) * 2)
    assert len(read(path)) == 2 * (25 + 1 + 64 + 25) * 320
