"""The samples of recordings that libsndfile does not read (M4A, AMR, video), decoded by a worker's reader.

The API does not import the worker: each reading is a process of its own, if this installation has the
worker's packages. It decodes as the worker did that made the transcript, so times agree to the sample.
"""

import json
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path

from api.recordings.sample_format import PCM, CannotCut, SampleFormat
from api.recordings.source import Readable, Recording

_RATE = 16_000
_BLOCK_BYTES = 1 << 16
_PROBE_S = 60


@dataclass(frozen=True, slots=True)
class WorkerSamples:
    """All channels as an engine hears them: 16 kHz, 16 bits. Decoded from the beginning on each call."""

    recording: Readable
    channels: int
    frames: int
    margin: float = 0.0

    @property
    def format(self) -> SampleFormat:
        return SampleFormat(PCM, self.channels, _RATE, 16, 2 * self.channels)

    def read(self, start: int, stop: int) -> Iterator[bytes]:
        """The frames `[start, stop)`. From where the recording cannot be decoded further it is silent."""
        left = (stop - start) * self.format.frame
        with _local_file(self.recording) as path, _run(path, str(start), str(stop)) as process:
            assert process.stdout is not None
            try:
                while left and (block := process.stdout.read(min(_BLOCK_BYTES, left))):
                    left -= len(block)
                    yield block
            finally:
                process.kill()  # also where the client has left
        for at in range(0, left, _BLOCK_BYTES):
            yield bytes(min(_BLOCK_BYTES, left - at))


def open_with_worker(recording: Readable, name: str, seconds: float) -> WorkerSamples:
    """The samples of a recording whose length a worker has found. Raises CannotCut without a worker's
    packages, and for what its reader cannot open."""
    if find_spec("av") is None:
        raise CannotCut(
            f"{name}: libsndfile does not read this format, and this API is installed without the worker's "
            "decoders: install spool[worker] beside it."
        )
    with _local_file(recording) as path, _run(path) as process:
        try:
            printed, told = process.communicate(timeout=_PROBE_S)
        except subprocess.TimeoutExpired:
            process.kill()
            raise CannotCut(f"{name}: reading its header took longer than {_PROBE_S} s.") from None
    if process.returncode:
        reason = told.decode(errors="replace").strip().rpartition("\n")[2].removeprefix(f"{path.name}: ")
        raise CannotCut(f"{name}: {reason}.")
    return WorkerSamples(recording, int(json.loads(printed)["channels"]), round(seconds * _RATE))


@contextmanager
def _local_file(recording: Readable) -> Iterator[Path]:
    """A file with the recording's bytes; a copy of those in a store, for as long as it is open."""
    if isinstance(recording, Recording) and recording.path is not None:
        yield recording.path
        return
    with tempfile.NamedTemporaryFile(prefix="spool-") as copy:
        for block in recording.part(0, recording.size):
            copy.write(block)
        copy.flush()
        yield Path(copy.name)


def _run(path: Path, *span: str) -> "subprocess.Popen[bytes]":
    command = [sys.executable, "-m", "worker.local.samples", str(path), *span]
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
