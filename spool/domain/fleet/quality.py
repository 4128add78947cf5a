"""Quality of inference: how a model's words on one machine and precision compare with its float32 words.

After WhisperKit's QoI: the share of recordings whose transcript is no worse than the reference's. Plain data.
"""

from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields
from typing import Any

INT8 = "int8"
"""The dtype of a model whose encoder multiplies in 8-bit integers."""


@dataclass(frozen=True, slots=True)
class Quality:
    """One measurement. wer, reference_wer: shares of the spoken words; rtfx: seconds of audio a second,
    without loading the model; joules: for a second of audio, if the machine reports it; bits: of quantised
    weights."""

    recordings: int
    no_worse: int
    wer: float
    reference_wer: float
    rtfx: float
    dtype: str
    device: str
    measured_at: str
    joules: float | None = None
    bits: int | None = None

    @property
    def qoi(self) -> float:
        """The share of recordings that are no worse, 0 to 1."""
        return self.no_worse / self.recordings

    @property
    def precision(self) -> str:
        """What it computes in, as people read it."""
        return self.dtype if self.bits is None else f"{self.dtype} with {self.bits}-bit weights"

    def document(self) -> dict[str, Any]:
        """The measurement as it is stored."""
        return asdict(self)


def quality_of(document: Mapping[str, Any]) -> Quality:
    """The measurement in `document`. Raises ValueError or TypeError for anything else."""
    quality = Quality(**{each.name: document.get(each.name) for each in fields(Quality)})  # type: ignore[arg-type]
    if not 0 <= quality.no_worse <= quality.recordings or not quality.recordings:
        raise ValueError("no recordings")
    return quality
