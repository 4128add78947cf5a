"""Fuzzes the readers with damaged real files: `python -m ops.fuzz.run audio --seconds 300 --seed 1`.

A child process reads one damaged file after the other. Only a reading or an error of ours (`SpoolError`) that
does not ask for a retry is a good answer: another exception, a signal, a minute of silence or a gigabyte of
memory is a finding, and its file is kept under `--keep`. Exit code 1 when there was one. The same seed tries
the same files.
"""

import argparse
import collections
import multiprocessing
import resource
import sys
import tempfile
import time
import traceback
from multiprocessing.connection import Connection
from pathlib import Path

from ops.fuzz.mutation import mutated
from ops.fuzz.targets import (
    language_models,
    manifests,
    models,
    read_language_model,
    read_manifest,
    read_model,
    read_recording,
    recordings,
)
from spool.errors import SpoolError

SILENT_S = 60.0
GROWTH_BYTES = 1 << 30
TARGETS = {
    "arpa": (language_models, read_language_model),
    "audio": (recordings, read_recording),
    "manifest": (manifests, read_manifest),
    "model": (models, read_model),
}


def _child(target: str, pipe: Connection) -> None:
    read = TARGETS[target][1]
    while (path := pipe.recv()) is not None:
        before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        try:
            read(path)
            answer, good = "read", True
        except SpoolError as error:
            answer, good = type(error).__name__, not error.retryable
        except BaseException:  # noqa: BLE001 - whatever it is, it is a finding
            answer, good = traceback.format_exc(), False
        growth = (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) * 1024
        if growth > GROWTH_BYTES:
            answer, good = f"{answer}, and {growth >> 20} MiB of memory", False
        pipe.send((answer, good))


class Reader:
    """The child that reads; started anew when it dies or falls silent."""

    def __init__(self, target: str) -> None:
        self._target = target
        self._start()

    def _start(self) -> None:
        context = multiprocessing.get_context("spawn")
        self._pipe, theirs = context.Pipe()
        self._process = context.Process(target=_child, args=(self._target, theirs), daemon=True)
        self._process.start()
        theirs.close()

    def read(self, path: Path) -> tuple[str, bool]:
        self._pipe.send(path)
        try:
            if self._pipe.poll(SILENT_S):
                answer: tuple[str, bool] = self._pipe.recv()
                return answer
            answer = f"silent for {SILENT_S:g} s", False
        except EOFError:
            self._process.join()
            answer = f"the process ended with {self._process.exitcode}", False
        self.close()
        self._start()
        return answer

    def close(self) -> None:
        self._process.kill()
        self._process.join()
        self._pipe.close()


def fuzz(target: str, seconds: float, seed: int, keep: Path, first: int, count: int | None) -> int:
    answers: collections.Counter[str] = collections.Counter()
    findings = 0
    with tempfile.TemporaryDirectory() as scratch:
        seeds = TARGETS[target][0](Path(scratch))
        reader = Reader(target)
        end = time.monotonic() + seconds
        number = first
        while time.monotonic() < end and (count is None or number < first + count):
            name, content = mutated(seeds, seed, number)
            path = Path(scratch) / name
            path.write_bytes(content)
            answer, good = reader.read(path)
            answers[answer.strip().splitlines()[-1]] += 1
            if not good:
                findings += 1
                keep.mkdir(parents=True, exist_ok=True)
                (keep / f"{target}-{seed}-{number}-{name}").write_bytes(content)
                print(f"FINDING {target} seed {seed} number {number} of {name}: {answer}", flush=True)
            number += 1
        reader.close()
    print(f"{target}: {number - first} files, seed {seed}, {findings} findings")
    for answer, times in answers.most_common():
        print(f"  {times:7d}  {answer}")
    return 1 if findings else 0


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("target", choices=sorted(TARGETS))
    parser.add_argument("--seconds", type=float, default=60.0)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--first", type=int, default=0, help="number of the first file")
    parser.add_argument("--count", type=int, help="files to try at most")
    parser.add_argument("--keep", type=Path, default=Path("var/fuzz"), help="where findings are kept")
    arguments = parser.parse_args()
    return fuzz(
        arguments.target, arguments.seconds, arguments.seed, arguments.keep, arguments.first, arguments.count
    )


if __name__ == "__main__":
    sys.exit(main())
