"""Windows of a recording for the phoneme model, and its answers as one table of frames.

The model hears a whole window at once, so a window's inner edges are heard with context on both sides, which
is left out of the table. Windows depend on the samples alone (law 7).
"""

from collections.abc import Iterable, Iterator

import numpy as np
from numpy.typing import NDArray

from spool.domain.recognition import ChunkSpan
from spool.sounds.phones import FRAME_SECONDS, PhoneMap
from worker.audio.resample import SAMPLE_RATE
from worker.decode.alignment.emissions import FLOOR, Emissions
from worker.models.requests import DecodeRequest, SearchOptions
from worker.segmentation.chunker import Chunk

CORE_SECONDS, CONTEXT_SECONDS = 20, 2
FRAME_SAMPLES = round(FRAME_SECONDS * SAMPLE_RATE)
_CORE, _CONTEXT = CORE_SECONDS * SAMPLE_RATE, CONTEXT_SECONDS * SAMPLE_RATE
SEARCH = SearchOptions(head="ctc")


def listen_request(labels: int) -> DecodeRequest:
    """What the engine is asked for a window: the probability of each of the model's labels."""
    return DecodeRequest(labels=tuple(range(labels)), search=SEARCH)


def plan_windows(blocks: Iterable[NDArray[np.float32]], channel: int = 0) -> Iterator[Chunk]:
    """Windows of one channel's `blocks`, float32 [n] at 16 kHz, each as soon as its samples are there. Holds
    one window."""
    held = np.zeros(0, np.float32)
    start = index = 0  # of what is held; of the next window
    for block in blocks:
        held = np.concatenate([held, block])
        # One sample more shows that the recording goes on.
        while start + len(held) > (index + 1) * _CORE + _CONTEXT:
            yield _window(held, start, index, channel, last=False)
            index += 1
            cut = max(0, index * _CORE - _CONTEXT) - start
            held, start = held[cut:], start + cut
    while start + len(held) > index * _CORE:
        last = start + len(held) <= (index + 1) * _CORE
        yield _window(held, start, index, channel, last=last)
        index += 1


def _window(held: NDArray[np.float32], start: int, index: int, channel: int, *, last: bool) -> Chunk:
    """The window that begins its core at `index` cores, of samples from `start` on."""
    first, end = max(0, index * _CORE - _CONTEXT), start + len(held)
    until = end if last else min((index + 1) * _CORE + _CONTEXT, end)
    core_end = end if last else (index + 1) * _CORE
    span = ChunkSpan(channel, index, core_start=index * _CORE, core_end=core_end, start=first, end=until)
    return Chunk(span, held[first - start : until - start])


def core_table(span: ChunkSpan, emissions: Emissions, phones: PhoneMap, labels: int) -> NDArray[np.uint8]:
    """The window's frames in its core, uint8 [T, COLUMNS]. emissions: the answer to `listen_request`."""
    table = phones.frames(emissions.dense(labels + 1), FLOOR)
    first = (span.core_start - span.start) // FRAME_SAMPLES
    if span.core_end == span.end:
        return table[first:]
    return table[first : first + (span.core_end - span.core_start) // FRAME_SAMPLES]
