"""`spool-worker bench`: how fast this machine transcribes, measured through the engine as a worker uses it.

Audio is split as for a job, and repeated until there is enough of it. The real-time factor (RTFx) is audio
seconds over engine seconds, as on a bill; wall-clock time, which includes reading and waiting, is reported
too.
"""

import itertools
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from spool import clock
from spool.errors import AudioEmpty
from spool.settings import Settings
from worker.audio import SAMPLE_RATE, open_audio
from worker.engine.client import Engine
from worker.engine.memory_budget import engine_options
from worker.engine.protocol import DEFAULT_LOADER
from worker.models.requests import DecodeRequest, SearchOptions
from worker.segmentation.chunker import plan_channels, plan_chunks

LOAD_SECONDS = 600.0
JOBS = 8  # a worker's default number of concurrent jobs, across which batches are formed


@dataclass(frozen=True, slots=True)
class BenchResult:
    """Times in seconds; `batch` is the mean number of utterances in a batch."""

    model: str
    device: str
    decoder: str
    audio_seconds: float
    engine_seconds: float
    wall_seconds: float
    load_seconds: float
    utterances: int
    batch: float
    words: int

    @property
    def rtfx(self) -> float:
        """Audio seconds per engine second."""
        return self.audio_seconds / self.engine_seconds if self.engine_seconds else 0.0


def run_bench(
    settings: Settings,
    model: str,
    options: SearchOptions,
    files: Sequence[Path],
    seconds: float,
    loader: str = DEFAULT_LOADER,
) -> BenchResult:
    """Transcribe at least `seconds` of audio from `files` (synthetic speech if there are none) with `model`
    (path or hub id).

    The first batch is not measured: it compiles and warms up. Raises ModelError, AudioError, EngineError.
    """
    utterances = _utterances(files, seconds)
    engine = Engine(engine_options(settings, loader)).start()
    try:
        info = engine.describe(model).result(LOAD_SECONDS)
        engine.submit("warm-up", utterances[0], model, DecodeRequest(search=options)).result()
        before = engine.stats
        begun = clock.monotonic()
        futures = [
            engine.submit(f"bench-{number % JOBS}", samples, model, DecodeRequest(search=options))
            for number, samples in enumerate(utterances)
        ]
        results = [future.result() for future in futures]
        wall = clock.monotonic() - begun
        after = engine.stats
    finally:
        engine.close()
    return BenchResult(
        model=info.name,
        device=info.device,
        decoder=options.decoder,
        audio_seconds=sum(len(samples) for samples in utterances) / SAMPLE_RATE,
        engine_seconds=(after.busy_ns - before.busy_ns) / 1e9,
        wall_seconds=wall,
        load_seconds=after.load_ns / 1e9,
        utterances=len(results),
        batch=len(results) / max(1, after.batches - before.batches),
        words=sum(len(result.words) for result in results),
    )


def _utterances(files: Sequence[Path], seconds: float) -> list[NDArray[np.float32]]:
    """Chunks with speech, as a job would send them, at least `seconds` in all."""
    wanted = int(seconds * SAMPLE_RATE)
    utterances: list[NDArray[np.float32]] = []
    held = 0
    chunks = list(_chunks(files))
    if not chunks:
        raise AudioEmpty("These recordings contain no speech to measure with.")
    for samples in itertools.cycle(chunks):
        utterances.append(samples)
        held += len(samples)
        if held >= wanted:
            break
    return utterances


def _chunks(files: Sequence[Path]) -> Iterator[NDArray[np.float32]]:
    if not files:
        yield from (chunk.samples for chunk in plan_chunks([synthetic_speech(120.0)]))
    for path in files:
        with open_audio(path) as audio:
            chunks = plan_channels(audio.blocks(), audio.channels)
            yield from (chunk.samples for chunk in chunks if chunk.speech)


def speech_of(*files: Path | str) -> NDArray[np.float32]:
    """All chunks with speech of the recordings, one after another; synthetic speech if there are none. Raises
    AudioError."""
    chunks = list(_chunks([Path(file) for file in files]))
    if not chunks:
        raise AudioEmpty("These recordings contain no speech to measure with.")
    return np.concatenate(chunks)


def synthetic_speech(seconds: float) -> NDArray[np.float32]:
    """Noise that rises and falls four times a second. It costs the encoder as much as speech does, the search
    less."""
    count = int(seconds * SAMPLE_RATE)
    swell = 0.55 - 0.45 * np.cos(2 * np.pi * 4.0 * np.arange(count) / SAMPLE_RATE)
    return (0.1 * swell * np.random.default_rng(0).standard_normal(count)).astype(np.float32)
