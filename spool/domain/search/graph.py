"""The search of a decoding graph, as a job asks for it. Pure: which graphs exist is for the caller to say."""

from typing import Annotated, Any

from pydantic import BaseModel, ConfigDict, Field

_FINITE: dict[str, Any] = {"strict": True, "allow_inf_nan": False}


class GraphSearch(BaseModel):
    """A decoding graph and how it is searched."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    name: Annotated[
        str, Field(min_length=1, max_length=200, description="The graph's name from the settings.")
    ]
    graph_beam: Annotated[
        float,
        Field(gt=0, le=100, description="How much dearer than the best a path may be to go on.", **_FINITE),
    ] = 16.0
    max_active: Annotated[
        int, Field(ge=1, le=100_000, strict=True, description="States that go on from a frame at most.")
    ] = 7000
    lattice_beam: Annotated[
        float,
        Field(ge=0, le=100, description="How much dearer than the best a hypothesis may be.", **_FINITE),
    ] = 10.0
    blank_skip: Annotated[
        float,
        Field(gt=0, le=1, description="Frames whose blank is likelier are not searched.", **_FINITE),
    ] = 1.0
    acoustic_scale: Annotated[
        float, Field(gt=0, le=100, description="Weight of the model against the graph.", **_FINITE)
    ] = 1.0
    unit_penalty: Annotated[
        float, Field(ge=-100, le=100, description="Added to a path's cost for each unit.", **_FINITE)
    ] = 0.0
