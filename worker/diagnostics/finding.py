"""One line of `spool-worker check`."""

from dataclasses import dataclass
from typing import Literal

Level = Literal["ok", "warn", "fail"]


@dataclass(frozen=True, slots=True)
class Finding:
    """One line of the check. `advice` says what to do if `level` is not ok."""

    name: str
    level: Level
    text: str
    advice: str = ""
