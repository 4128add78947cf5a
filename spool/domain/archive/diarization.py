"""Whether a job's speakers are told apart, by which model, and what is known of them."""

from typing import Annotated

from pydantic import BaseModel, ConfigDict, Field, ValidationInfo, field_validator, model_validator

MOST_SPEAKERS = 99

SpeakerNumber = Annotated[int, Field(ge=1, le=MOST_SPEAKERS, strict=True)]


class SpeakerRange(BaseModel):
    """The least and the most speakers there may be."""

    model_config = ConfigDict(frozen=True, extra="forbid", defer_build=True)

    min: SpeakerNumber = 1
    max: SpeakerNumber = MOST_SPEAKERS

    @model_validator(mode="after")
    def _in_order(self) -> "SpeakerRange":
        if self.min > self.max:
            raise ValueError(f"min is {self.min} and max is {self.max}; min must not exceed max")
        return self


class Diarization(BaseModel):
    """A request to tell the speakers apart, and what is known of them."""

    model_config = ConfigDict(frozen=True, extra="forbid", defer_build=True)

    model: Annotated[
        str,
        Field(
            max_length=200,
            pattern=r"^[A-Za-z0-9][\w.-]*(/[\w.-]+)?$",
            description="The diarization model: `default`, which comes with Spool; `sortformer`, NVIDIA's, "
            "for up to four speakers; or a name of the worker's settings or of the catalogue.",
        ),
    ] = "default"
    speakers: Annotated[
        SpeakerNumber | SpeakerRange | None,
        Field(
            description="The number of speakers, or `{min, max}`; null if unknown. Knowing "
            "it helps more than anything else."
        ),
    ] = None
    within_channels: Annotated[
        bool,
        Field(
            strict=True,
            description="With `channels: separate`, tell speakers apart within each channel; by default each "
            "channel is one speaker.",
        ),
    ] = False
    voice_prints: Annotated[
        bool,
        Field(
            strict=True,
            description="Keep a voice print of each speaker, which lets the project's named voices be "
            "recognised. Prints stay in the database and are deleted with the transcript.",
        ),
    ] = False

    @field_validator("model")
    @classmethod
    def _is_known(cls, name: str, info: ValidationInfo) -> str:
        known = (info.context or {}).get("diarization_models")
        if name != "default" and known is not None and name not in known:
            raise ValueError(f"there is no such diarization model; available: default, {', '.join(known)}")
        return name

    @property
    def least(self) -> int:
        """The least speakers there may be."""
        return self._bounds[0]

    @property
    def most(self) -> int:
        """The most speakers there may be."""
        return self._bounds[1]

    @property
    def _bounds(self) -> tuple[int, int]:
        if isinstance(self.speakers, SpeakerRange):
            return self.speakers.min, self.speakers.max
        return self.speakers or 1, self.speakers or MOST_SPEAKERS
