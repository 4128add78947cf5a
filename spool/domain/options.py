"""How a job is transcribed: its options, as a request sends them and as a job stores them.

Pure: the caller knows which models, language models and graphs exist.
"""

from collections.abc import Collection, Mapping
from typing import Annotated, Any, Literal, Self

from pydantic import BaseModel, ConfigDict, Field, JsonValue, ValidationInfo, field_validator, model_validator
from pydantic_core import InitErrorDetails, PydanticCustomError, ValidationError

from spool.domain.archive.alignment import AsksAlignment, KeepsAlignment
from spool.domain.archive.diarization import Diarization
from spool.domain.archive.disfluencies import VERBATIM_LANGUAGES
from spool.domain.declaration import Option, find_refusals
from spool.domain.live.options import Listening
from spool.domain.search.fields import SearchFields, UtteranceFields
from spool.domain.search.graph import GraphSearch
from spool.domain.search.phrases import Boost, KeptBoost, PhraseList
from spool.domain.search.rescoring import Rescoring
from spool.domain.search.searches import BEAMS, FUSING
from spool.domain.transcript import Verbatim

Decoder = Literal["greedy", "beam"]
"""The options by which forecasts are kept apart."""
OnTruncated = Literal["transcribe", "fail"]


class _Model(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid", defer_build=True)

    model: Annotated[
        str,
        Option("Options", metavar="NAME"),
        Field(
            min_length=1,
            max_length=200,
            description="A model that a worker has. Default: the default model (`spool models default`).",
        ),
    ]


class Options(SearchFields, UtteranceFields, _Model):
    """Every option of a job. The only place where an option is named, typed, described, and given its range,
    its default and what it applies to (`spool.domain.declaration`).

    The HTTP schema, the flags of both commands, refusals and `docs/command-line.md` are derived from it.
    """

    rescore: Annotated[
        Rescoring | None,
        Option("Search", searches=BEAMS, flag="rescore-model"),
        Field(
            description="A second model's attention decoder, an LSTM language model, or a language model of "
            "the project (`NAME@VERSION`) reads the beam's hypotheses of each chunk and orders them: "
            "`{model, weight}`."
        ),
    ] = None
    context: Annotated[
        Literal["chunk", "job"],
        Option("Words to expect", needs=("language_model", "boost")),
        Field(
            description="Reset language model and phrases at each chunk, or carry them through the whole "
            "recording, whose chunks are then decoded one after another."
        ),
    ] = "chunk"
    channels: Annotated[
        Literal["mix", "separate"],
        Option("Recording"),
        Field(description="Mix all channels, or transcribe each one separately."),
    ] = "mix"
    speech_detector: Annotated[
        bool,
        Option("Recording"),
        Field(strict=True, description="Skip stretches without speech, and drop words invented there."),
    ] = True
    on_truncated: Annotated[
        OnTruncated,
        Option("Recording"),
        Field(description="If a recording is cut off: transcribe what is there, or fail."),
    ] = "transcribe"
    witness: Annotated[
        bool,
        Option("Recording", excludes=("task", "translate_to")),
        Field(
            strict=True,
            description="Check the words against their sounds with a second, small recogniser (English): "
            "mark what nobody said, and list speech without words.",
        ),
    ] = False
    drop_unsupported: Annotated[
        bool,
        Option("Recording", needs=("witness",)),
        Field(
            strict=True,
            description="Leave out the segments that the witness finds no evidence for; the JSON keeps them "
            "as `dropped`.",
        ),
    ] = False
    verbatim: Annotated[
        Verbatim,
        Option("Language"),
        Field(
            description="Fillers (um, uh), doubled words (the the) and false starts (w- we) that the model "
            f"wrote, in {', '.join(VERBATIM_LANGUAGES)}: `keep` them, `mark` them, or `omit` them from "
            "texts, subtitles and exports; the JSON has every word."
        ),
    ] = "keep"
    diarization: Annotated[
        Diarization | None,
        Option("Speakers"),
        Field(description="Tell speakers apart: `{}`, `{speakers: 2}`, `{speakers: {min: 2, max: 4}}`."),
    ] = None

    def document(self) -> dict[str, JsonValue]:
        """The options as JSON, without those that have their default."""
        return self.model_dump(mode="json", exclude_defaults=True)


class JobOptions(Options, KeepsAlignment):
    """The options as a job stores them; together with the audio and the model they determine the transcript
    (law 7). Phrases and an existing transcript are stored once, under their digest."""

    boost: Annotated[
        KeptBoost | None, Option("Words to expect"), Field(description="Phrases that are boosted.")
    ] = None
    live: Annotated[
        Listening | None,
        Field(exclude_if=lambda value: value is None, description="Of a live session."),
    ] = None

    @property
    def of_words(self) -> "JobOptions":
        """The options that determine the words, without those about speakers, the witness, truncated
        recordings, what is marked or left out, and the origin of phrases."""
        boost = self.boost and self.boost.model_copy(update={"glossary": None})
        checks = {"witness": False, "drop_unsupported": False}
        others = {"diarization": None, "on_truncated": "transcribe", "boost": boost, "verbatim": "keep"}
        return self.model_copy(update={**checks, **others})


class AskedOptions(Options, AsksAlignment):
    """The options of a request, with the phrases and the existing transcript themselves.

    An unknown name is refused with `language_models` or `graphs` in the validation's context.
    """

    boost: Annotated[
        Boost | None,
        Option("Words to expect", searches=FUSING),
        Field(description="Words and phrases to be boosted."),
    ] = None

    @field_validator("language_model")
    @classmethod
    def _refuse_unknown_language_model(cls, name: str | None, info: ValidationInfo) -> str | None:
        known = (info.context or {}).get("language_models")
        if name is not None and known is not None and name not in known:
            raise ValueError(f"there is no such language model; available: {', '.join(known) or 'none'}")
        return name

    @field_validator("graph")
    @classmethod
    def _refuse_unknown_graph(cls, graph: GraphSearch | None, info: ValidationInfo) -> GraphSearch | None:
        known = (info.context or {}).get("graphs")
        if graph is not None and known is not None and graph.name not in known:
            raise ValueError(f"there is no such graph; available: {', '.join(known) or 'none'}")
        return graph

    @field_validator("rescore")
    @classmethod
    def _refuse_unknown_reader(cls, rescore: Rescoring | None, info: ValidationInfo) -> Rescoring | None:
        known, name = (info.context or {}).get("language_models"), rescore and rescore.language_model
        if name is not None and known is not None and name not in known:
            raise ValueError(f"there is no language model {name}; a bare name is a model's")
        return rescore

    @field_validator("boost")
    @classmethod
    def _drop_empty_boost(cls, boost: Boost | None) -> Boost | None:
        return boost if boost and boost.phrases else None

    @model_validator(mode="after")
    def _refuse_contradictions(self) -> Self:
        for name, reason in contradictions(self):
            raise refusal(name, reason)
        return self

    @property
    def phrases(self) -> PhraseList | None:
        """The phrase list that the job's options name."""
        return None if self.boost is None else self.boost.phrase_list

    def job_options(self) -> JobOptions:
        """The options as a job stores them."""
        options = {name: getattr(self, name) for name in Options.model_fields}
        if self.align is not None:
            options["speech_detector"] = False  # no word of the text is dropped
        boost, align = self.boost and self.boost.kept, self.align and self.align.kept
        return JobOptions(**options, boost=boost, align=align)


def contradictions(options: Options, also: Collection[str] = ()) -> list[tuple[str, str]]:
    """The options that cannot be combined as they are, each with the reason, in which names of options are in
    backticks. also: options that are given in another form."""
    found = list(find_refusals(options, also))
    if options.nbest > options.beam and options.decoder != "greedy":
        found.append(("nbest", f"must not exceed `beam`, which is {options.beam}"))
    if options.decoder == "wfst" and options.graph is None:
        found.append(("graph", "is required with `decoder` wfst"))
    return found


def drop_inapplicable(kept: Mapping[str, Any], changes: Mapping[str, Any]) -> dict[str, Any]:
    """The kept options that still apply beside the changes: a beam does not apply to a change to greedy.
    Neither has been validated."""
    left = dict(kept)
    while True:
        asked = AskedOptions.model_construct(**{"model": "", **left, **changes})
        stale = {name for name, _ in find_refusals(asked)} & (left.keys() - changes.keys())
        if not stale:
            return left
        left = {name: value for name, value in left.items() if name not in stale}


def refusal(name: str, reason: str) -> ValidationError:
    """The error that refuses one option."""
    fault = PydanticCustomError("contradiction", "{reason}", {"reason": reason})
    return ValidationError.from_exception_data(
        "Options", [InitErrorDetails(type=fault, loc=(name,), input=None)]
    )
