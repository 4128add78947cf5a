"""The schemas of versions: the jobs of one recording, and where their words differ."""

from datetime import datetime
from typing import Annotated, Any

from pydantic import AliasPath, Field

from spool.domain.jobs import JobState
from spool.domain.manifest import Tags
from spool.domain.options import JobOptions
from spool.domain.transcript import Share
from spool.schemas.common import ROUNDED, AnswerModel, Money, Pool, RecordingTime, RequestModel
from spool.schemas.jobs import CostOut, Priority, StretchOut, add_options


class RerunRequest(RequestModel):
    """What to change for the new version."""

    options: dict[str, Any] = Field(
        default_factory=dict,
        description="Options that replace those of the job. The others, its phrases included, are kept if "
        "they still apply: with `greedy`, a `beam` is dropped.",
        json_schema_extra=add_options,
    )
    start: RecordingTime | None = Field(
        None,
        description="With `end`: replace only this stretch, from here on, in seconds. The other words are "
        "those of the job, as they are corrected.",
    )
    end: RecordingTime | None = Field(None, description="Where the stretch ends, in seconds.")
    pool: Pool | None = Field(None, description="The pool of workers. Default: any with the model.")
    tags: Tags = Field(default_factory=dict)
    priority: Priority = "normal"


class VersionOut(AnswerModel):
    """One job on a recording."""

    job: str = Field(validation_alias="id")
    state: JobState
    model: str = Field(validation_alias=AliasPath("options", "model"))
    options: JobOptions
    submitted_by: str | None = Field(
        validation_alias="key_id", description="The id of the API key; null without one."
    )
    created_at: datetime
    finished_at: datetime | None
    words: Annotated[int | None, Field(description="Words in the transcript, once done.")]
    stretch: StretchOut | None = Field(
        None,
        description="What it replaces of another version, if it does not transcribe the whole recording.",
    )
    deleted: Annotated[bool, Field(description="Whether its transcript was deleted.")]
    cost: CostOut


class VersionList(AnswerModel):
    """The versions of a recording, oldest first."""

    recording: Annotated[str, Field(description="The first job on it.")]
    stored: Annotated[
        bool,
        Field(description="False: it was uploaded and has been deleted, so it cannot be transcribed again."),
    ]
    items: list[VersionOut]


class ComparedWord(AnswerModel):
    """One word of one version."""

    text: str
    start: float
    end: float
    confidence: Share


class DifferenceOut(AnswerModel):
    """A stretch where the words of two versions differ; either side may be empty."""

    channel: int
    start: float
    end: float
    doubt: Annotated[Share, ROUNDED, Field(description="One minus the confidence of its least certain word.")]
    base: list[ComparedWord]
    other: list[ComparedWord]


class DiffOut(AnswerModel):
    """Where the words of two versions differ. Case and punctuation are ignored."""

    base: str
    other: str
    words: Annotated[int, Field(description="Words of `base`, as WER counts them.")]
    edits: Annotated[int, Field(description="Words substituted, deleted or inserted.")]
    wer: Annotated[float | None, Field(description="Edits per word of `base`; null if it has none.")]
    total: Annotated[int, Field(description="The number of differences.")]
    items: list[DifferenceOut]


class ComparedSums(AnswerModel):
    """Two versions of some recordings in numbers."""

    recordings: int
    words: Annotated[int, Field(description="Words of the first versions, as WER counts them.")]
    edits: Annotated[int, Field(description="Words substituted, deleted or inserted.")]
    wer: Annotated[float | None, Field(description="Edits per word; null without words.")]
    cost_before: Annotated[Money, Field(description="Billable cost of the first versions.")]
    cost_after: Annotated[Money, Field(description="Billable cost of the later ones.")]
    currency: str


class ComparedJob(AnswerModel):
    """A job of the batch and the newest later version of its recording."""

    base: str
    other: str
    name: Annotated[str, Field(description="The recording's.")]
    words: int
    edits: int
    wer: float | None
    cost_before: Money
    cost_after: Money


class BatchDiff(AnswerModel):
    """A page of the jobs of a batch beside their later versions. `sums` cover this page only."""

    items: list[ComparedJob]
    sums: ComparedSums
    next_cursor: str | None
