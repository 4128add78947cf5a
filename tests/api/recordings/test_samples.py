"""Recordings of any format as WAV files: any part of them, silent where closed, in bounded memory."""

import io
import random
import tracemalloc
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest
import soundfile
from numpy.typing import NDArray

from api.recordings.sample_format import CannotCut
from api.recordings.samples import Silence, open_samples
from api.recordings.source import RecordingFile
from api.recordings.wav_file import WavFile
from spool.recordings.wav_header import read_wav_header

RATE, SECONDS = 16_000, 8
FORMATS = [
    ("FLAC", "PCM_16", 1),
    ("FLAC", "PCM_24", 2),
    ("OGG", "VORBIS", 2),
    ("OGG", "OPUS", 1),
    ("MP3", "MPEG_LAYER_III", 1),
    ("AIFF", "PCM_16", 1),
    ("CAF", "ALAC_16", 2),
    ("W64", "PCM_16", 1),
    ("WAV", "PCM_24", 2),
    ("WAV", "FLOAT", 1),
    ("WAV", "ULAW", 1),
    ("WAV", "GSM610", 1),
]


@dataclass
class Bytes:
    """A recording in memory, which counts what is read of it."""

    data: bytes
    taken: int = 0

    @property
    def size(self) -> int:
        return len(self.data)

    def part(self, start: int, end: int) -> Iterator[bytes]:
        for at in range(start, end, 64 * 1024):
            block = self.data[at : min(at + 64 * 1024, end)]
            self.taken += len(block)
            yield block


def encode(container: str, subtype: str, channels: int, loudness: float = 0.3) -> Bytes:
    time = np.arange(RATE * SECONDS) / RATE
    tone = loudness * np.sin(2 * np.pi * (200 + 30 * np.sin(time)) * time)
    file = io.BytesIO()
    with soundfile.SoundFile(file, "w", RATE, channels, subtype, format=container) as out:
        for second in np.split(np.stack([tone / (1 + at) for at in range(channels)], 1), SECONDS):
            out.write(second)
    return Bytes(file.getvalue())


def decoded(data: bytes) -> NDArray[np.float64]:
    with soundfile.SoundFile(io.BytesIO(data)) as sound:
        samples: NDArray[np.float64] = sound.read(sound.frames, dtype="float64", always_2d=True)
    return samples


def read(file: WavFile, start: int = 0, end: int | None = None) -> bytes:
    return b"".join(file.part(start, file.size if end is None else end))


@pytest.mark.parametrize(("container", "subtype", "channels"), FORMATS)
def test_any_part_is_what_it_is_in_the_whole_and_closed_times_are_silent(
    container: str, subtype: str, channels: int
) -> None:
    recording = encode(container, subtype, channels)
    samples = open_samples(recording, "tape", SECONDS)
    file = WavFile(samples, 0, samples.frames, [(2.0, 3.0), (7.5, float("inf"))])
    whole = read(file)
    assert len(whole) == file.size

    # As WAV it has the recording's samples, but for the closed times
    found, want = decoded(whole), decoded(recording.data)
    assert found.shape == want.shape
    assert not found[2 * RATE : 3 * RATE].any()
    assert not found[round(7.5 * RATE) :].any()
    exact = subtype in ("PCM_16", "PCM_24", "FLOAT", "ULAW", "GSM610", "ALAC_16")
    margin = round(samples.margin * RATE) + 2
    for first, last in ((0, 2 * RATE - margin), (3 * RATE + margin, round(7.5 * RATE) - margin)):
        assert np.abs(found[first:last] - want[first:last]).max() <= (0 if exact else 1 / 32_768)
        assert found[first:last].any()

    # And whatever bytes are asked for are those of the whole
    pick = random.Random(1)
    for _ in range(6):
        start = pick.randrange(file.size)
        end = pick.randrange(start, file.size) + 1
        assert read(file, start, end) == whole[start:end]
    assert read(file, file.size - 3, file.size) == whole[-3:]
    assert read(file, 5, 9) == whole[5:9]


@pytest.mark.parametrize(("container", "subtype", "channels"), FORMATS)
def test_a_stretch_is_cut_at_its_samples(container: str, subtype: str, channels: int) -> None:
    recording = encode(container, subtype, channels)
    samples = open_samples(recording, "tape", SECONDS)
    cut = WavFile(samples, 30_001, 60_002, [(2.0, 2.5)])
    found = decoded(read(cut))
    whole = decoded(read(WavFile(samples, 0, samples.frames, [(2.0, 2.5)])))
    assert (found == whole[30_001:60_002]).all()
    assert not found[2 * RATE - 30_001 :][: RATE // 2].any()


def test_an_hour_takes_the_memory_of_a_block_and_a_part_only_what_is_near() -> None:
    file = io.BytesIO()
    noise = np.random.default_rng(1).integers(-2000, 2000, 8000 * 60, dtype=np.int16)
    with soundfile.SoundFile(file, "w", 8000, 1, "PCM_16", format="FLAC") as out:
        for _ in range(60):
            out.write(noise)
    recording = Bytes(file.getvalue())
    samples = open_samples(recording, "tape.flac", 3600)
    wav = WavFile(samples, 0, samples.frames, [(60.0, 120.0)])
    tracemalloc.start()
    assert sum(map(len, wav.part(0, wav.size))) == wav.size
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 2 << 20

    recording.taken = 0
    assert len(read(wav, wav.size - 8000, wav.size)) == 8000
    assert recording.taken < recording.size // 8


def test_what_libsndfile_measures_differently_is_refused() -> None:
    recording = encode("OGG", "VORBIS", 1)
    with pytest.raises(CannotCut, match=r"another length than the 7\.5 s that a worker found"):
        open_samples(recording, "tape.ogg", 7.5)
    with pytest.raises(CannotCut, match="once a worker has read it to its end"):
        open_samples(recording, "tape.ogg", None)


@pytest.mark.parametrize("subtype", ["VORBIS", "OPUS"])
def test_what_is_too_loud_is_clipped(subtype: str) -> None:
    loud = encode("OGG", subtype, 1, loudness=4.0)
    want = decoded(loud.data)
    samples = open_samples(loud, "tape.ogg", SECONDS)
    found = decoded(read(WavFile(samples, 0, samples.frames)))
    assert want.max() > 1.1
    assert np.abs(found - want.clip(-1, 1)).max() <= 1 / 32_768


def test_a_file_that_was_cut_off_ends_in_silence() -> None:
    recording = encode("FLAC", "PCM_16", 1)
    recording.data = recording.data[: len(recording.data) // 2]
    samples = open_samples(recording, "tape.flac", SECONDS)
    found = decoded(read(WavFile(samples, 0, samples.frames)))
    assert len(found) == RATE * SECONDS
    assert found[RATE : 2 * RATE].any()
    assert not found[-RATE:].any()


def test_beyond_four_gibibytes_the_header_has_sizes_of_64_bits() -> None:
    file = WavFile(Silence(40 * 3600.0), 0, 40 * 3600 * RATE)
    header = read_wav_header(RecordingFile(file))  # type: ignore[arg-type]
    assert header is not None
    assert header.declared == header.present == 40 * 3600 * RATE * 2 > 1 << 32
    assert file.size - header.data_offset == header.present


def test_a_plain_wav_is_cut_byte_for_byte(tmp_path: Path) -> None:
    recording = encode("WAV", "PCM_16", 2)
    samples = open_samples(recording, "tape.wav", None)
    cut = read(WavFile(samples, 100, 200))
    assert cut[44:] == recording.data[44 + 400 : 44 + 800]
