"""What happened in a run, in lines that a person can follow, and what broke a law."""

import hashlib
from collections.abc import Callable
from dataclasses import dataclass, field


@dataclass
class Timeline:
    """`now` returns virtual seconds."""

    now: Callable[[], float]
    lines: list[str] = field(default_factory=list)
    violations: list[str] = field(default_factory=list)
    show: Callable[[str], None] | None = None
    """Called with each line as it comes."""

    def __post_init__(self) -> None:
        self._digest = hashlib.sha256()

    def note(self, text: str) -> None:
        """Something happened."""
        line = f"{clock_of(self.now())}  {text}"
        self.lines.append(line)
        self._digest.update(line.encode())
        if self.show is not None:
            self.show(line)

    def violate(self, rule: str, text: str) -> None:
        """A law was broken."""
        self.violations.append(f"{rule}: {text}")
        self.note(f"VIOLATION of {rule}: {text}")

    @property
    def digest(self) -> str:
        """The same for two runs in which the same things happened at the same times."""
        return self._digest.hexdigest()[:16]


def clock_of(seconds: float) -> str:
    """Hours, minutes and seconds: `  12:03:04.250`."""
    minutes, rest = divmod(seconds, 60)
    hours, minutes = divmod(int(minutes), 60)
    return f"{hours:4d}:{minutes:02d}:{rest:06.3f}"
