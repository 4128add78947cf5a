"""Recordings that libsndfile does not read: any part of them, decoded in a process of a worker's reader."""

from pathlib import Path

import numpy as np
import psutil
import pytest
from numpy.typing import NDArray

from api.recordings import worker_samples
from api.recordings.sample_format import CannotCut
from api.recordings.samples import open_samples
from api.recordings.source import Readable, Recording
from api.recordings.wav_file import WavFile
from ops.testbed.bad_audio import write_av
from tests.api.recordings.test_samples import Bytes, decoded, read
from worker.audio import open_audio

pytestmark = pytest.mark.integration
RATE, SECONDS = 16_000, 6


def write_tone(path: Path, container: str, codec: str, rate: int, channels: int) -> Path:
    at = np.arange(rate * SECONDS) / rate
    tone = 0.3 * np.sin(2 * np.pi * (200 + 30 * np.sin(at)) * at)
    samples = np.stack([tone / (1 + channel) for channel in range(channels)], 1).astype(np.float32)
    return write_av(path, container, codec, samples, rate)


def heard(path: Path) -> NDArray[np.float32]:
    """As an engine hears it."""
    with open_audio(path, channels="separate") as stream:
        return np.concatenate(list(stream.blocks()))


@pytest.mark.parametrize(
    ("container", "codec", "rate", "channels"),
    [("mp4", "aac", 44_100, 2), ("mov", "aac", 16_000, 1), ("matroska", "ac3", 48_000, 2)],
)
@pytest.mark.parametrize("stored", [False, True], ids=["in a folder", "in a store"])
def test_any_part_is_what_an_engine_heard_and_closed_times_are_silent(
    tmp_path: Path, container: str, codec: str, rate: int, channels: int, stored: bool
) -> None:
    path = write_tone(tmp_path / "tape", container, codec, rate, channels)
    size, want = path.stat().st_size, heard(path)
    recording: Readable = Bytes(path.read_bytes()) if stored else Recording(size, None, "", None, path)
    samples = open_samples(recording, "tape", len(want) / RATE)
    assert (samples.format.channels, samples.frames) == (channels, len(want))
    whole = WavFile(samples, 0, samples.frames, [(2.0, 3.0)])
    bytes_of_all = read(whole)
    assert len(bytes_of_all) == whole.size
    found = decoded(bytes_of_all)
    assert not found[2 * RATE : 3 * RATE].any()
    for part in (slice(0, 2 * RATE - 1), slice(3 * RATE + 1, None)):
        assert np.abs(found[part] - want[part]).max() <= 1 / 32_768
    assert read(whole, 70_001, 70_099) == bytes_of_all[70_001:70_099]
    cut = WavFile(samples, 30_001, 60_002)
    assert np.abs(decoded(read(cut)) - want[30_001:60_002]).max() <= 1 / 32_768


def test_a_reader_that_leaves_leaves_no_process(tmp_path: Path) -> None:
    path = write_tone(tmp_path / "tape.m4a", "mp4", "aac", 48_000, 1)
    samples = open_samples(Recording(path.stat().st_size, None, "", None, path), "tape.m4a", SECONDS)
    blocks = samples.read(0, samples.frames)
    assert next(blocks)
    blocks.close()  # type: ignore[attr-defined]
    assert not [each for each in psutil.Process().children() if str(path) in each.cmdline()]


def test_what_no_reader_opens_says_why(monkeypatch: pytest.MonkeyPatch) -> None:
    broken = Bytes(b"\0\0\0\x18ftypM4A " + bytes(1000))
    with pytest.raises(CannotCut) as refused:
        open_samples(broken, "talk.m4a", 3.0)
    assert refused.value.detail.startswith("talk.m4a: ")
    assert "spool-" not in refused.value.detail
    monkeypatch.setattr(worker_samples, "find_spec", lambda name: None)
    with pytest.raises(CannotCut, match=r"without the worker's decoders: install spool\[worker\]"):
        open_samples(broken, "talk.m4a", 3.0)
