"""Which search a job asks for, and the parameters that only some searches take. Pure."""

from typing import Annotated, Literal

from pydantic import BaseModel, Field

SearchName = Literal["greedy", "beam", "rescore", "attention"]
HeadName = Literal["auto", "tdt", "rnnt", "ctc", "attention"]


class SearchChoice(BaseModel):
    """The search, and what belongs to it alone."""

    decoder: Annotated[
        SearchName,
        Field(
            description="Search over the model's output. `rescore` orders a CTC beam's hypotheses by "
            "attention decoders, `attention` is the beam of such a decoder; for models that have both."
        ),
    ] = "greedy"
    head: Annotated[
        HeadName,
        Field(description="Which head of the model is searched; auto takes TDT, else RNNT, CTC, attention."),
    ] = "auto"
    alignments: Annotated[
        Literal["auto", "best", "all"],
        Field(
            description="Score a hypothesis of a CTC head's beam by its best alignment or by the sum of all; "
            "auto does what the model's own tools do."
        ),
    ] = "auto"
    beta: Annotated[
        float,
        Field(
            ge=-100,
            le=100,
            strict=True,
            allow_inf_nan=False,
            description="Added to a hypothesis for each token, by a CTC head's beam.",
        ),
    ] = 0.0
    ctc_weight: Annotated[
        float | None,
        Field(
            ge=0,
            le=100,
            strict=True,
            allow_inf_nan=False,
            description="The weight of the CTC score in rescoring (null: 0.5), or of the CTC head in the "
            "beam of a WeNet transducer, below 1 (null: 0).",
        ),
    ] = None
    reverse_weight: Annotated[
        float | None,
        Field(
            ge=0,
            le=1,
            strict=True,
            allow_inf_nan=False,
            description="The weight of the decoder from right to left in rescoring (null: 0).",
        ),
    ] = None
