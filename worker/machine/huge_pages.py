"""Huge pages (2 MB) for the processes that compute, on Linux.

A step of a decoder reads hundreds of megabytes sequentially, and with pages of 4 KB a fifth of the time is
spent on address translation. Where the system gives huge pages on request (`madvise`, the default of many
distributions), glibc 2.35 and later requests them if a tunable is set when a process starts.
"""

import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager

VARIABLE = "GLIBC_TUNABLES"
TUNABLE = "glibc.malloc.hugetlb"


def with_huge_pages(environment: Mapping[str, str]) -> dict[str, str]:
    """The environment of a process that requests huge pages; unchanged if it already sets the tunable."""
    tunables = environment.get(VARIABLE, "")
    if TUNABLE in tunables:
        return dict(environment)
    value = ":".join(part for part in (tunables, f"{TUNABLE}=1") if part)
    return {**environment, VARIABLE: value}


@contextmanager
def start_with_huge_pages() -> Iterator[None]:
    """Processes started while the block runs request huge pages."""
    before = os.environ.get(VARIABLE)
    os.environ[VARIABLE] = with_huge_pages(os.environ)[VARIABLE]
    try:
        yield
    finally:
        if before is None:
            os.environ.pop(VARIABLE, None)
        else:
            os.environ[VARIABLE] = before
