"""The groups of a job's options, in the order of the help and the documentation.

A module of its own, since `spool --help` must not wait for pydantic.
"""

from typing import Literal

Group = Literal[
    "Common",
    "Search",
    "Language",
    "Words to expect",
    "Recording",
    "Speakers",
    "Decoding graph",
    "Live session",
]
