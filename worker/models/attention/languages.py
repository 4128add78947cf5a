"""Which languages a model is asked in that finds out what is spoken."""

from collections.abc import Sequence
from dataclasses import dataclass

# A language that is not this many times as probable as the second is held against it: accented English is
# easily taken for Chinese, but what is read in the wrong language is less sure.
ODDS = 10.0


@dataclass(frozen=True, slots=True)
class Languages:
    """What is spoken in a window: each code's probability among the languages."""

    probabilities: dict[str, float]

    @property
    def best(self) -> str:
        """The likeliest code, the first of equals."""
        return max(self.probabilities, key=lambda code: self.probabilities[code])

    def among(self, codes: Sequence[str]) -> "Languages":
        """The same among these languages alone; as it is without any."""
        if not codes:
            return self
        total = max(sum(self.probabilities[code] for code in codes), 1e-30)
        return Languages({code: self.probabilities[code] / total for code in codes})

    @property
    def asked(self) -> tuple[str, ...]:
        """The likeliest, and the second where the model is in doubt."""
        first, *others = sorted(self.probabilities, key=lambda code: -self.probabilities[code])[:2]
        return first, *(
            code for code in others if self.probabilities[first] < ODDS * self.probabilities[code]
        )

    @property
    def likely(self) -> tuple[tuple[str, float], ...]:
        """The five likeliest with their probabilities, those below 0.001 left out."""
        ranked = sorted(self.probabilities.items(), key=lambda pair: -pair[1])[:5]
        return tuple((code, round(share, 3)) for code, share in ranked if share >= 0.001)
