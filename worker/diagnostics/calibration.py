"""Times single batches of a model, as input for a plan (`spool.planning.throughput`).

Runs in this process and not through the engine's queue, so that each batch is exactly the one asked for.
Every round times all batches in turn, and the shortest time of each batch counts, since other load
on the machine only adds to it.
"""

import time
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

import spool
from spool import clock
from spool.domain.recognition import Recognition
from spool.planning.roofline import Batch
from spool.planning.throughput import Run
from worker.engine.protocol import NOTHING, SAMPLE_RATE, Recognizer
from worker.machine.hardware import this_machine
from worker.models.requests import DecodeRequest, SearchOptions

BATCHES = (
    Batch(5, 1),
    Batch(5, 8),
    Batch(20, 1),
    Batch(20, 4),
    Batch(30, 2),
    Batch(10, 4, "beam", 2),
    Batch(20, 1, "beam", 4),
    Batch(20, 4, "beam", 8),
    Batch(5, 8, "beam", 4),
    Batch(30, 2, "beam", 8),
    Batch(3, 16),
    Batch(20, 2, "beam", 16),
)
"""Varied enough to separate all terms of a throughput."""


def measure(
    recognizer: Recognizer, speech: NDArray[np.float32], batches: Sequence[Batch], rounds: int = 2
) -> list[Run]:
    """Time each batch, filled from `speech` (16 kHz, repeated as needed); returns the best of the rounds."""
    filled = [_utterances(speech, batch) for batch in batches]
    best: list[tuple[float, ...]] = [(np.inf,) * 3] * len(batches)
    recognizer.recognize(filled[0], [NOTHING] * len(filled[0]))  # compiles, warms up
    for _ in range(rounds):
        for number, batch in enumerate(batches):
            taken = _time(recognizer, filled[number], batch)
            best[number] = tuple(map(min, best[number], taken))
    return [Run(batch, *taken) for batch, taken in zip(batches, best, strict=True)]


def document(model: str, device: str, runs: Sequence[Run]) -> dict[str, object]:
    """The input of `spool plan --calibration`, in engine and processor seconds; `model` as jobs name it."""
    hardware = this_machine()
    return {
        "spool": spool.__version__,
        "model": model,
        "chip": hardware.chip,
        "device": device,
        "runs": [
            {
                "seconds": run.batch.seconds,
                "utterances": run.batch.utterances,
                "decoder": run.batch.decoder,
                "beam": run.batch.beam,
                "engine_seconds": run.seconds,
                "processor_seconds": run.processor_seconds,
                "tokens_a_second": run.tokens,
            }
            for run in runs
        ],
    }


def _time(recognizer: Recognizer, utterances: list[NDArray[np.float32]], batch: Batch) -> tuple[float, ...]:
    """Wall-clock seconds, processor seconds, and tokens for each second of audio."""
    request = DecodeRequest(search=SearchOptions(decoder=batch.decoder, beam=batch.beam))
    requests = [request] * len(utterances)
    began, computed = clock.monotonic(), time.process_time()
    answers = recognizer.recognize(utterances, requests)
    seconds, processor = clock.monotonic() - began, time.process_time() - computed
    tokens = sum(len(answer.hypotheses[0].tokens) for answer in answers if isinstance(answer, Recognition))
    return seconds, processor, tokens / batch.audio_seconds


def _utterances(speech: NDArray[np.float32], batch: Batch) -> list[NDArray[np.float32]]:
    """The utterances of a batch, each from another place in the speech."""
    length = int(batch.seconds * SAMPLE_RATE)
    count = int(batch.utterances)
    starts = (number * len(speech) // max(1, count) for number in range(count))
    return [np.resize(np.roll(speech, -start), length) for start in starts]
