"""A second model that reorders the hypotheses of a search, as a job requests it. Pure."""

from typing import Annotated

from pydantic import BaseModel, ConfigDict, Field

from spool.domain.declaration import Option


class Rescoring(BaseModel):
    """The model that reads the hypotheses, and the weight of its scores."""

    model_config = ConfigDict(frozen=True, extra="forbid", defer_build=True)

    model: Annotated[
        str,
        Option("Search", flag="rescore-model", metavar="NAME"),
        Field(
            min_length=1,
            max_length=200,
            description="A model with an attention decoder, an LSTM language model, or `NAME@VERSION`: a "
            "language model of the project.",
        ),
    ]
    weight: Annotated[
        float,
        Option("Search", flag="rescore-weight"),
        Field(
            ge=0,
            le=100,
            strict=True,
            allow_inf_nan=False,
            description="Weight of its log-probability, which is added to a hypothesis's score.",
        ),
    ] = 0.5

    @property
    def second_model(self) -> str | None:
        """The model that a worker must have; None for a language model of the project, which any worker
        fetches."""
        return None if self.language_model else self.model

    @property
    def language_model(self) -> str | None:
        """The project's language model that rescores, as `NAME@VERSION`."""
        return self.model if "@" in self.model else None
