"""A lattice of words as it is kept and handed out: what else the search thought possible, and how much so.

Pure data. States are numbered so that every arc leads to a higher one; state 0 is the start. Weights are
natural logarithms: the sum of `acoustic` and `lm` along a path and of its end is the path's score. One
lattice covers one chunk; times are seconds from the start of the recording.
"""

from typing import Annotated

from pydantic import BaseModel, ConfigDict, Field


class _Record(BaseModel):
    model_config = ConfigDict(
        frozen=True, extra="forbid", validate_by_name=True, validate_by_alias=True, serialize_by_alias=True
    )


class LatticeArc(_Record):
    """One word between two states. `confidence` is how probable it is; `lm` is what a language model and
    boosted phrases gave. A token without text is an arc with an empty word."""

    source: Annotated[int, Field(alias="from", ge=0)]
    target: Annotated[int, Field(alias="to", ge=0)]
    word: str
    start: float
    end: float
    acoustic: float
    lm: float
    confidence: Annotated[float, Field(ge=0, le=1)]


class LatticeEnd(_Record):
    """A state where a path may end, and what ending there weighs."""

    state: Annotated[int, Field(ge=0)]
    acoustic: float
    lm: float


class Lattice(_Record):
    """One chunk's lattice. `prune`: arcs are kept whose best path is within so much of the best path's score.
    `times`: for each state, when the words before it have ended."""

    start: Annotated[float, Field(ge=0)]
    end: Annotated[float, Field(ge=0)]
    channel: int = 0
    prune: float
    score: float
    frame_seconds: Annotated[float, Field(gt=0)]
    times: tuple[float, ...]
    arcs: tuple[LatticeArc, ...]
    ends: tuple[LatticeEnd, ...]

    def moved(self, seconds: float, channel: int) -> "Lattice":
        """The same, `seconds` later."""

        def later(time: float) -> float:
            return round(time + seconds, 3)

        arcs = tuple(
            arc.model_copy(update={"start": later(arc.start), "end": later(arc.end)}) for arc in self.arcs
        )
        moved = {
            "start": later(self.start),
            "end": later(self.end),
            "channel": channel,
            "times": tuple(map(later, self.times)),
            "arcs": arcs,
        }
        return self.model_copy(update=moved)
