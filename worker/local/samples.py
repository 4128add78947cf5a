"""Writes samples of a recording to standard output, for an API that has no decoder for its format.

    python -m worker.local.samples FILE               a line of JSON: how many channels it has
    python -m worker.local.samples FILE FIRST LAST    the frames [FIRST, LAST) of all channels, interleaved

Samples are what an engine hears: 16 kHz, here as 16-bit little-endian integers. Decodes from the beginning,
so that a frame is where the transcript's times say. Exit code 1 with a sentence for a recording that cannot
be read.
"""

import json
import os
import sys
from collections.abc import Sequence

import numpy as np

from spool.errors import SpoolError
from worker.audio import open_audio
from worker.audio.base import Samples

_FULL_SCALE = 32_768


def main(arguments: Sequence[str]) -> int:
    """Print what was asked for; the exit code."""
    file, *span = arguments
    os.nice(5)  # requests go first
    try:
        with open_audio(file, channels="separate") as stream:
            if not span:
                sys.stdout.write(json.dumps({"channels": stream.channels}))
                return 0
            first, last = map(int, span)
            at = 0
            for block in stream.blocks():
                wanted = block[max(0, first - at) : max(0, last - at)]
                sys.stdout.buffer.write(_write_pcm(wanted))
                at += len(block)
                if at >= last:
                    break
            sys.stdout.buffer.flush()
    except SpoolError as error:
        sys.stderr.write(error.message)
        return 1
    return 0


def _write_pcm(samples: Samples) -> bytes:
    scaled = np.rint(samples * _FULL_SCALE).clip(-_FULL_SCALE, _FULL_SCALE - 1)
    return scaled.astype("<i2").tobytes()


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
