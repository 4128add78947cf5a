"""n-gram language models of projects: files in the ARPA format, and what their first lines say. Pure.

A job names one as `NAME` or `NAME@VERSION`. Only workers read the n-grams.
"""

import re
from collections.abc import Iterable

from spool.errors import InvalidRequest

MOST_BYTES = 512 * 2**20
"""Of a file."""
HEAD_BYTES = 64 * 2**10
"""The first bytes of a file, which must contain the counts."""
_COUNT = re.compile(r"ngram ([0-9]{1,2}) *= *([0-9]{1,18})")
_LAST = b"\\end\\"


def read_counts(head: bytes, tail: bytes) -> tuple[int, int]:
    """The order of a model and its number of n-grams, from a file's first `HEAD_BYTES` and its last bytes.
    Raises InvalidRequest if the file is not in ARPA format or is incomplete."""
    counts = _counts(line.strip() for line in head.decode("utf-8", errors="replace").split("\n"))
    if not counts:
        raise InvalidRequest(
            "This is not an ARPA file: it does not state how many n-grams it has (\\data\\)."
        )
    if not tail.rstrip().endswith(_LAST):
        raise InvalidRequest("The ARPA file is cut off: its last line is not \\end\\.")
    return len(counts), sum(counts)


def _counts(lines: Iterable[str]) -> list[int]:
    counts: list[int] = []
    begun = False
    for line in lines:
        if not begun:
            begun = line == "\\data\\"
        elif match := _COUNT.fullmatch(line):
            if int(match[1]) != len(counts) + 1:
                return []
            counts.append(int(match[2]))
        else:
            return counts
    return []
