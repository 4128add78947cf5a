"""Pages of 2 MB for the processes that compute, on Linux.

A step of a decoder reads hundreds of megabytes from one end to the other, and finding its way through pages
of 4 KB takes a fifth of the time. Where the system gives large pages to whoever asks (`madvise`, the default
of many distributions), glibc 2.35 and later asks for them if it is told so when a process starts.
"""

import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager

VARIABLE = "GLIBC_TUNABLES"
TUNABLE = "glibc.malloc.hugetlb"


def with_huge_pages(environment: Mapping[str, str]) -> dict[str, str]:
    """The environment of a process that is to ask for large pages; as it is where it says itself what to ask
    for."""
    tunables = environment.get(VARIABLE, "")
    if TUNABLE in tunables:
        return dict(environment)
    asked = ":".join(part for part in (tunables, f"{TUNABLE}=1") if part)
    return {**environment, VARIABLE: asked}


@contextmanager
def start_with_huge_pages() -> Iterator[None]:
    """Processes that are started while the block runs ask for them."""
    before = os.environ.get(VARIABLE)
    os.environ[VARIABLE] = with_huge_pages(os.environ)[VARIABLE]
    try:
        yield
    finally:
        if before is None:
            os.environ.pop(VARIABLE, None)
        else:
            os.environ[VARIABLE] = before
