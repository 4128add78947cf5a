"""How much processor time a short command takes, against the stack that runs in this home:

.venv/bin/python -m ops.bench.queue.command_time --runs 11

The commands alternate, so that what else the machine does slows each of them alike.
"""

import argparse
import resource
import subprocess
import sys
from pathlib import Path
from statistics import median

SPOOL = str(Path(sys.executable).with_name("spool"))
COMMANDS: tuple[tuple[str, ...], ...] = (("--help",), ("status",), ("costs",), ("glossary", "list"))


def processor_seconds(arguments: tuple[str, ...]) -> float:
    """User and system time of one run."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    subprocess.run([SPOOL, *arguments], check=True, stdout=subprocess.DEVNULL)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--runs", type=int, default=11)
    runs = parser.parse_args().runs
    taken: dict[tuple[str, ...], list[float]] = {command: [] for command in COMMANDS}
    for _ in range(runs):
        for command in COMMANDS:
            taken[command].append(processor_seconds(command))
    for command, seconds in taken.items():
        print(f"spool {' '.join(command):<16} median {median(seconds):.3f} s, least {min(seconds):.3f} s")


if __name__ == "__main__":
    main()
