"""The search of a decoding graph, as a job requests it. Pure: the caller knows which graphs exist."""

from typing import Annotated, Any

from pydantic import BaseModel, ConfigDict, Field

from spool.domain.declaration import Option
from spool.domain.option_groups import Group

GROUP: Group = "Decoding graph"
_FINITE: dict[str, Any] = {"strict": True, "allow_inf_nan": False}


class GraphSearch(BaseModel):
    """A decoding graph and how it is searched."""

    model_config = ConfigDict(frozen=True, extra="forbid", defer_build=True)

    name: Annotated[
        str,
        Option(GROUP, flag="graph", metavar="NAME"),
        Field(min_length=1, max_length=200, description="Name of a decoding graph from the settings."),
    ]
    graph_beam: Annotated[
        float,
        Option(GROUP),
        Field(
            gt=0,
            le=100,
            description="Paths whose cost exceeds the best by more than this are pruned.",
            **_FINITE,
        ),
    ] = 16.0
    max_active: Annotated[
        int,
        Option(GROUP),
        Field(ge=1, le=100_000, strict=True, description="The most states that are kept after a frame."),
    ] = 7000
    lattice_beam: Annotated[
        float,
        Option(GROUP),
        Field(
            ge=0,
            le=100,
            description="Hypotheses whose cost exceeds the best by more than this are dropped.",
            **_FINITE,
        ),
    ] = 10.0
    blank_skip: Annotated[
        float,
        Option(GROUP),
        Field(
            gt=0, le=1, description="Frames whose blank is more probable than this are skipped.", **_FINITE
        ),
    ] = 1.0
    acoustic_scale: Annotated[
        float,
        Option(GROUP),
        Field(gt=0, le=100, description="Weight of the acoustic scores relative to the graph.", **_FINITE),
    ] = 1.0
    unit_penalty: Annotated[
        float,
        Option(GROUP),
        Field(ge=-100, le=100, description="Added to a path's cost for each unit.", **_FINITE),
    ] = 0.0
