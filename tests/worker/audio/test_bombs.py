"""Recordings that are small and claim to be huge: bounded memory and disk, through a whole job."""

import resource
import struct
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pytest
import soundfile

from ops.testbed.bad_audio import babble, pcm16, wav_bytes, write_av
from ops.testbed.fake_models import RATE
from ops.testbed.jobs import WorkerHarness, running_engine
from spool.domain import JobState
from spool.settings import Settings
from spool.store import Database
from worker.engine import Engine

pytestmark = pytest.mark.integration

HOUR = 3600
GROWTH_MIB = 300
ALLOWED = {"done", "failed"}


@pytest.fixture(scope="module")
def engine() -> Iterator[Engine]:
    with running_engine() as engine:
        yield engine


@pytest.fixture
def make_harness(
    sqlite_url: str, tmp_path: Path, engine: Engine, make_settings: Callable[..., Settings]
) -> Iterator[Callable[..., WorkerHarness]]:
    db = Database(sqlite_url)
    (tmp_path / "archive").mkdir()

    def make(**settings: object) -> WorkerHarness:
        told: dict[str, object] = {"models": {"plain": "plain"}, "default_model": "plain"}
        told["source_roots"] = (tmp_path / "archive",)
        return WorkerHarness(make_settings(**{**told, **settings}), db, engine, tmp_path / "archive")

    yield make
    db.close()


@pytest.fixture
def flat() -> Iterator[None]:
    """Memory grew by no more than a few hundred megabytes."""
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    yield
    grown = (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) >> 10
    assert grown < GROWTH_MIB, f"{grown} MiB"


@pytest.fixture(scope="module")
def silence(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An hour in kilobytes."""
    path = tmp_path_factory.mktemp("bombs") / "silence.flac"
    with soundfile.SoundFile(path, "w", samplerate=8_000, channels=1, subtype="PCM_16") as out:
        silence = np.zeros(8_000 * 600, np.int16)
        for _ in range(6):
            out.write(silence)
    assert path.stat().st_size < 250_000
    return path


def placed(harness: WorkerHarness, name: str, content: bytes) -> Path:
    path = harness.folder / name
    path.write_bytes(content)
    return path


@pytest.mark.usefixtures("flat")
def test_hours_of_silence_in_kilobytes_are_too_long_whatever_the_header_says(
    make_harness: Callable[..., WorkerHarness], silence: Path
) -> None:
    harness = make_harness(max_audio_seconds=HOUR / 2)
    honest = silence.read_bytes()
    streaminfo = bytearray(honest)
    streaminfo[21] &= 0xF0  # 36 bits: how many samples there are; 0 is "unknown"
    streaminfo[22:26] = bytes(4)
    for name, content in (("honest.flac", honest), ("silent.flac", bytes(streaminfo))):
        job_id = harness.submit(placed(harness, name, content))
        assert harness.run(job_id) == "failed"
        assert harness.job(job_id).error_code == "audio_too_long"


@pytest.mark.usefixtures("flat")
def test_hours_of_silence_that_are_allowed_ask_nothing_of_the_engine(
    make_harness: Callable[..., WorkerHarness], silence: Path
) -> None:
    harness = make_harness()
    job_id = harness.submit(placed(harness, "silence.flac", silence.read_bytes()))
    assert harness.run(job_id) == "done"
    job = harness.job(job_id)
    assert (job.audio_seconds, job.coverage, job.words, harness.decoded) == (HOUR, 1.0, 0, 0)


def _big_wav() -> bytes:
    return wav_bytes(pcm16(babble(1.0)), promised=0xFFFFFF00)


def _wav_with_a_huge_chunk() -> bytes:
    data = wav_bytes(pcm16(babble(1.0)))
    return data[:12] + b"JUNK" + struct.pack("<I", 0x7FFFFFFF) + data[12:]


def _rf64_of_exabytes() -> bytes:
    data = wav_bytes(pcm16(babble(1.0)), promised=0xFFFFFFFF)
    sizes = struct.pack("<QQQI", 1 << 62, 1 << 62, 1 << 61, 0)
    return b"RF64\xff\xff\xff\xffWAVEds64" + struct.pack("<I", len(sizes)) + sizes + data[12:]


def _aiff_of_two_gigabytes() -> bytes:
    common = struct.pack(">hIh", 1, 1 << 30, 16) + bytes.fromhex("400cfa00000000000000")
    form = b"COMM" + struct.pack(">I", len(common)) + common + b"SSND" + struct.pack(">III", 0x7FFFFFF0, 0, 0)
    body = form + bytes(3200)
    return b"FORM" + struct.pack(">I", 0x7FFFFFF0) + b"AIFF" + body


def _tag_of_256_megabytes() -> bytes:
    return b"ID3\x04\x00\x00\x7f\x7f\x7f\x7f" + bytes(1000)


CLAIMS = {
    "4gb.wav": (_big_wav, "done"),
    "chunk.wav": (_wav_with_a_huge_chunk, "failed"),
    "exabytes.wav": (_rf64_of_exabytes, "done"),
    "2gb.aiff": (_aiff_of_two_gigabytes, "done"),
    "tag.mp3": (_tag_of_256_megabytes, "failed"),
}


@pytest.mark.parametrize("name", CLAIMS)
@pytest.mark.usefixtures("flat")
def test_a_header_that_claims_gigabytes(make_harness: Callable[..., WorkerHarness], name: str) -> None:
    make, ending = CLAIMS[name]
    harness = make_harness()
    job_id = harness.submit(placed(harness, name, make()))
    assert harness.run(job_id) == ending
    job = harness.job(job_id)
    if ending == "done":
        assert job.audio_seconds is not None
        assert job.audio_seconds <= 1.0
    else:
        assert (job.error_code or "").startswith("audio_")


@pytest.mark.parametrize("table", [b"stts", b"stsc", b"stsz", b"stco"])
@pytest.mark.usefixtures("flat")
def test_an_mp4_whose_tables_claim_billions_of_rows(
    make_harness: Callable[..., WorkerHarness], tmp_path: Path, table: bytes
) -> None:
    harness = make_harness()
    path = write_av(tmp_path / "a.m4a", "mp4", "aac", babble(3.0), RATE)
    content = bytearray(path.read_bytes())
    at = content.index(table) + (12 if table == b"stsz" else 8)
    for count, name in ((0xFFFFFFFF, "most.m4a"), (0x00FFFFFF, "many.m4a")):
        content[at : at + 4] = struct.pack(">I", count)
        job_id = harness.submit(placed(harness, name, bytes(content)))
        assert harness.run(job_id) in ALLOWED
        assert harness.job(job_id).state in {JobState.DONE, JobState.FAILED}
        assert (harness.job(job_id).error_code or "audio_").startswith("audio_")


@pytest.mark.usefixtures("flat")
def test_an_ogg_of_a_hundred_thousand_empty_pages(
    make_harness: Callable[..., WorkerHarness], tmp_path: Path
) -> None:
    harness = make_harness()
    path = tmp_path / "a.ogg"
    soundfile.write(path, babble(2.0), RATE, format="OGG", subtype="VORBIS")
    content = path.read_bytes()
    last = content.rindex(b"OggS")
    page = bytearray(b"OggS\0\0" + content[6:14] + content[14:18] + b"\x09\0\0\0" + bytes(4) + b"\0")
    page[22:26] = struct.pack("<I", _ogg_checksum(bytes(page)))
    job_id = harness.submit(
        placed(harness, "pages.ogg", content[:last] + bytes(page) * 100_000 + content[last:])
    )
    assert harness.run(job_id) in ALLOWED
    assert (harness.job(job_id).error_code or "audio_").startswith("audio_")


def _ogg_checksum(page: bytes) -> int:
    """CRC-32 with polynomial 0x04c11db7, from 0, not reflected."""
    value = 0
    for byte in page:
        value ^= byte << 24
        for _ in range(8):
            value = (value << 1) ^ 0x104C11DB7 if value & 0x80000000 else value << 1
    return value & 0xFFFFFFFF
