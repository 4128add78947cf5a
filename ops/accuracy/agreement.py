"""How far two implementations agree: how many answers are equal, and the largest difference of numbers."""

from collections import Counter
from collections.abc import Mapping


class Agreement:
    """Comparisons by kind. Base of the scripts that hold a family of models against its oracle."""

    def __init__(self) -> None:
        self.compared: Counter[str] = Counter()
        self.equal: Counter[str] = Counter()
        self.gaps: dict[str, float] = {}

    def note(self, kind: str, equal: bool, name: str = "") -> None:
        """Count a comparison; one that fails is printed under its name, if it has one."""
        self.compared[kind] += 1
        self.equal[kind] += equal
        if name and not equal:
            print(f"  DIFFERS {name}: {kind}")

    def gap(self, kind: str, value: float) -> None:
        """Note how far numbers are apart."""
        self.gaps[kind] = max(self.gaps.get(kind, 0.0), value)

    def fails(self, tolerances: Mapping[str, float]) -> bool:
        """Whether a comparison failed, or a gap is above its kind's tolerance. Raises KeyError for a kind
        without one."""
        too_wide = any(gap > tolerances[kind] for kind, gap in self.gaps.items())
        return too_wide or self.equal.total() < self.compared.total()

    def __str__(self) -> str:
        equal = ", ".join(f"{kind} {self.equal[kind]} of {count}" for kind, count in self.compared.items())
        gaps = ", ".join(f"{kind} {gap:.1e}" for kind, gap in self.gaps.items())
        return f"equal: {equal}; largest gaps: {gaps}"
