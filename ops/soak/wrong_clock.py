"""Gives a process a time of day that is off, and leaves its steady clocks and its sleeps alone."""

from pathlib import Path

from kernels.runtime.build_cpu import build_library

SOURCE = Path(__file__).with_name("wrong_clock.cpp")
UNITS = {"m": 60, "h": 3600}


def wrong_clock(offset: str) -> dict[str, str]:
    """Variables of a process whose time of day is off by `offset`, such as +10m or -1h."""
    library = build_library("wrong_clock", SOURCE.read_text(), ("-O2", "-fPIC", "-shared"))
    seconds = int(offset[:-1]) * UNITS[offset[-1]]
    return {"LD_PRELOAD": str(library), "SPOOL_SOAK_CLOCK_SECONDS": str(seconds)}
