"""Live sessions at once: how long words take, and what an archive beside them loses.

    python -m ops.bench.live MODEL AUDIO… [--through engine|stack] [--sessions 1 4 16] [--seconds 30]
        [--att-context 70,1] [--head rnnt] [--archive 0|1] [--detector 0|1] [--device cpu|gpu]

Each session hears one of the recordings, over and over, in blocks of 80 ms at the pace of speech. Through
`engine` they are in this process, however many the engine would admit, and begin spread over a second;
through `stack` they are WebSockets of an API's process in front of Redis, PostgreSQL, a folder of objects and
a worker's process, are measured once each has been answered, and those that are refused are counted. With
--archive there are jobs to decode all the time, too: the same recordings. Prints a line of JSON for each
number of sessions:

    {"sessions", "refused", "words", "partial_ms": {"p50", "p95", "p99"}, "final_ms": {…}, "behind_ms": {…},
     "wait_ms": {…}, "engine_share", "archive_rtfx", "rebuilds"}

`partial_ms` is from the end of a word in the audio to the first partial or final that has it, `final_ms` to
its final. Through the engine there are also `behind_ms`, how late a block was answered after it could be
sent, `wait_ms`, how long it lay there without being worked on (with several sessions: or others were), and
`rebuilds`. `engine_share` is the live sessions' part of the wall time, `archive_rtfx` the jobs'
seconds of audio a second; the line with 0 sessions is the archive alone. The end of a word is the model's
own: its last token's frame and duration.
"""

import argparse
import json
import sys
from collections.abc import Sequence
from pathlib import Path

from ops.bench.live.engine import measure_engine
from ops.bench.live.run import Run, read_samples
from ops.bench.live.stack import measure_stack


def main(arguments: Sequence[str] | None = None) -> None:
    """Measure each number of sessions and print its line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("model")
    parser.add_argument("audio", nargs="+", type=Path)
    parser.add_argument("--through", choices=("engine", "stack"), default="engine")
    parser.add_argument("--sessions", nargs="+", type=int, default=[1, 4, 16])
    parser.add_argument("--seconds", type=float, default=30.0)
    parser.add_argument("--att-context", default="70,1")
    parser.add_argument("--head", choices=("auto", "tdt", "rnnt", "ctc"), default="auto")
    parser.add_argument("--archive", type=int, choices=(0, 1), default=1)
    parser.add_argument("--detector", type=int, choices=(0, 1), default=0)
    parser.add_argument("--device", default="cpu")
    asked = parser.parse_args(arguments)
    left, right = map(int, asked.att_context.split(","))
    run = Run(
        asked.sessions,
        asked.seconds,
        bool(asked.archive),
        (left, right),
        asked.head,
        bool(asked.detector),
        asked.device,
    )
    recordings = [read_samples(path) for path in asked.audio]
    measure = measure_engine if asked.through == "engine" else measure_stack
    for line in measure(asked.model, recordings, run):
        sys.stdout.write(json.dumps(line) + "\n")
        sys.stdout.flush()


if __name__ == "__main__":
    main()
