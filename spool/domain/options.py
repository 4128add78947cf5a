"""How a job is transcribed: the options of a request, and those that a job stores.

Pure: the caller knows which models, language models and graphs exist.
"""

from typing import Annotated, Any, Literal

from pydantic import (
    BaseModel,
    ConfigDict,
    Field,
    JsonValue,
    ValidationInfo,
    field_validator,
    model_validator,
)

from spool.domain.archive.alignment import AsksAlignment, KeepsAlignment
from spool.domain.archive.diarization import Diarization
from spool.domain.live.options import Listening
from spool.domain.search.graph import GraphSearch
from spool.domain.search.phrases import Boost, KeptBoost, PhraseList
from spool.domain.search.rescoring import Rescoring
from spool.domain.transcript import Language

Decoder = Literal["greedy", "beam"]
"""The options by which forecasts are kept apart."""
SearchName = Literal["greedy", "beam", "rescore", "attention", "wfst"]
OnTruncated = Literal["transcribe", "fail"]
HeadName = Literal["auto", "tdt", "rnnt", "ctc", "attention"]
_FINITE: dict[str, Any] = {"strict": True, "allow_inf_nan": False}


class _Options(BaseModel):
    """The options of the search, except boosted phrases."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    model: Annotated[
        str,
        Field(
            min_length=1,
            max_length=200,
            description="A model that a worker has. Default: the default model (`spool models default`).",
        ),
    ]
    decoder: Annotated[
        SearchName,
        Field(
            description="Search over the model's output. `rescore` orders the hypotheses of a CTC head's or "
            "WeNet transducer's beam by attention decoders, `attention` is the beam of such a decoder; for "
            "models that have both. `wfst` searches a decoding graph over a CTC head. The default is greedy "
            "for every model; with Whisper, `beam` with a beam of 5 makes fewer errors and takes longer."
        ),
    ] = "greedy"
    head: Annotated[
        HeadName, Field(description="Head that is searched; auto takes TDT, else RNNT, CTC, attention.")
    ] = "auto"
    alignments: Annotated[
        Literal["auto", "best", "all"],
        Field(
            description="Score a hypothesis of a CTC head's beam by its best alignment or by the sum of all; "
            "auto does what the model's own tools do."
        ),
    ] = "auto"
    beta: Annotated[
        float, Field(ge=-100, le=100, description="Added for each token by a CTC head's beam.", **_FINITE)
    ] = 0.0
    blank_penalty: Annotated[
        float, Field(ge=0, le=100, description="Subtracted from the blank's logit of a CTC head.", **_FINITE)
    ] = 0.0
    ctc_weight: Annotated[
        float | None,
        Field(
            ge=0,
            le=100,
            description="CTC score's weight in rescoring; null is 0.5. In the beam of a WeNet transducer "
            "that of its CTC head, and where its hypotheses are rescored, of their score in the beam; "
            "null is then 0.",
            **_FINITE,
        ),
    ] = None
    reverse_weight: Annotated[
        float | None,
        Field(ge=0, le=1, description="Right-to-left decoder's weight in rescoring; null is 0.", **_FINITE),
    ] = None
    attention_weight: Annotated[
        float,
        Field(
            ge=0,
            le=100,
            description="Weight of the attention decoders in rescoring, both directions together; 0 leaves "
            "them out.",
            **_FINITE,
        ),
    ] = 1.0
    transducer_weight: Annotated[
        float,
        Field(
            ge=0,
            le=100,
            description="In rescoring a transducer's hypotheses, the weight of their log-likelihood over all "
            "alignments.",
            **_FINITE,
        ),
    ] = 0.0
    search_ctc_weight: Annotated[
        float,
        Field(
            ge=0,
            lt=1,
            description="In rescoring a transducer's hypotheses, the CTC head's weight in the beam that "
            "finds them.",
            **_FINITE,
        ),
    ] = 0.0
    graph: Annotated[
        GraphSearch | None,
        Field(description="A decoding graph, for the decoder `wfst`; `rescore` then orders its hypotheses."),
    ] = None
    rescore: Annotated[
        Rescoring | None,
        Field(
            description="A second model's attention decoder, an LSTM language model, or a language model of "
            "the project (`NAME@VERSION`) reads the beam's hypotheses of each chunk and orders them: "
            "`{model, weight}`."
        ),
    ] = None
    beam: Annotated[
        int, Field(ge=1, le=32, strict=True, description="Hypotheses kept by the beam decoder.")
    ] = 4
    channels: Annotated[
        Literal["mix", "separate"], Field(description="Mix all channels, or transcribe each one separately.")
    ] = "mix"
    nbest: Annotated[
        int,
        Field(
            ge=1,
            le=32,
            strict=True,
            description="Hypotheses of each chunk in the transcript; at most the beam.",
        ),
    ] = 1
    alternatives: Annotated[
        int,
        Field(ge=0, le=20, strict=True, description="Alternatives to each word, from the beam."),
    ] = 0
    lattice: Annotated[
        float | None,
        Field(
            ge=0,
            le=1000,
            **_FINITE,
            description="Keep a lattice of each chunk: the words whose best path scores within this distance "
            "(natural logarithm) of the best path; 5 to 10 is usual.",
        ),
    ] = None
    language_model: Annotated[
        str | None,
        Field(
            min_length=1,
            max_length=200,
            description="An n-gram language model: one of the project as `NAME` or `NAME@VERSION`, or one "
            "from the settings.",
        ),
    ] = None
    lm_weight: Annotated[float, Field(ge=0, le=10, description="The language model's weight.", **_FINITE)] = (
        0.3
    )
    lm_blanks: Annotated[bool, Field(strict=True, description="Let the language model score blanks too.")] = (
        False
    )
    pruning: Annotated[
        Literal["late", "early"],
        Field(
            description="Prune the beam after the scores of language model and phrases are added (late), or "
            "before (early)."
        ),
    ] = "late"
    context: Annotated[
        Literal["chunk", "job"],
        Field(
            description="Reset language model and phrases at each chunk, or carry them through the whole "
            "recording, whose chunks are then decoded one after another."
        ),
    ] = "chunk"
    speech_detector: Annotated[
        bool,
        Field(
            strict=True,
            description="Do not decode stretches without speech, and drop segments invented there.",
        ),
    ] = True
    scores: Annotated[
        Literal["float", "fixed"],
        Field(
            description="Add scores as 32-bit floats, or in fixed point (Q16.16), where the order of sums "
            "does not matter."
        ),
    ] = "float"
    language: Annotated[
        Language,
        Field(description="The language spoken, such as `en`, or a list to choose among; `auto`: detect it."),
    ] = None
    task: Annotated[
        Literal["transcribe", "translate"],
        Field(description="Write what is said, or its English translation; for models that can."),
    ] = "transcribe"
    translate_to: Annotated[
        str | None,
        Field(
            pattern="^[a-z]{2,3}$",
            description="The language to write in, such as `de`, for models that translate (Canary); null is "
            "English for the task `translate`.",
        ),
    ] = None
    punctuation: Annotated[
        bool,
        Field(
            strict=True,
            description="Write marks and capitals; false for plain words, for models that can be told "
            "(Canary).",
        ),
    ] = True
    timestamps: Annotated[
        Literal["auto", "on", "off"],
        Field(
            description="Whether an attention decoder writes times among its tokens; auto asks with and "
            "without and takes the better answer."
        ),
    ] = "auto"
    prompt: Annotated[
        str,
        Field(
            max_length=4000,
            description="Preceding text, for an attention decoder; for Canary also its prompt slots "
            "as a JSON object.",
        ),
    ] = ""
    hotwords: Annotated[
        str, Field(max_length=4000, description="Words to expect, given to an attention decoder.")
    ] = ""
    patience: Annotated[
        float,
        Field(
            gt=0,
            le=10,
            strict=True,
            allow_inf_nan=False,
            description="An attention decoder's beam ends with beam times patience finished hypotheses.",
        ),
    ] = 1.0
    length_penalty: Annotated[
        float | None,
        Field(
            ge=0,
            le=2,
            strict=True,
            allow_inf_nan=False,
            description="Hypotheses are ranked by score / ((5 + tokens) / 6)^length_penalty; null ranks them "
            "by their mean score (Whisper) or their score (Canary). With the decoder `attention`: by "
            "score / tokens^length_penalty; null is 0.",
        ),
    ] = None
    on_truncated: Annotated[
        OnTruncated,
        Field(description="If a recording is cut off: transcribe what is there, or fail."),
    ] = "transcribe"
    diarization: Annotated[
        Diarization | None,
        Field(description="Tell speakers apart: `{}`, `{speakers: 2}`, `{speakers: {min: 2, max: 4}}`."),
    ] = None


class JobOptions(_Options, KeepsAlignment):
    """The submitter's choices; together with the audio and the model they determine the transcript (law
    7)."""

    boost: Annotated[KeptBoost | None, Field(description="Phrases that are boosted.")] = None
    live: Annotated[
        Listening | None,
        Field(exclude_if=lambda value: value is None, description="Of a live session."),
    ] = None

    @property
    def of_words(self) -> "JobOptions":
        """The options that determine the words, without those about speakers, truncated recordings and the
        origin of phrases."""
        boost = self.boost and self.boost.model_copy(update={"glossary": None})
        return self.model_copy(update={"diarization": None, "on_truncated": "transcribe", "boost": boost})

    def document(self) -> dict[str, JsonValue]:
        """The options as JSON, without those that have their default."""
        return self.model_dump(mode="json", exclude_defaults=True)


class AskedOptions(_Options, AsksAlignment):
    """The options of a request, with the phrases themselves.

    A contradiction is refused at the later of its fields; with `language_models` in the validation's context,
    so is an unknown name.
    """

    boost: Annotated[Boost | None, Field(description="Words and phrases to be boosted.")] = None

    @field_validator("language_model")
    @classmethod
    def _is_known(cls, name: str | None, info: ValidationInfo) -> str | None:
        known = (info.context or {}).get("language_models")
        if name is not None and known is not None and name not in known:
            raise ValueError(f"there is no such language model; available: {', '.join(known) or 'none'}")
        return name

    @field_validator("graph")
    @classmethod
    def _is_searched(cls, graph: GraphSearch | None, info: ValidationInfo) -> GraphSearch | None:
        known, decoder = (info.context or {}).get("graphs"), info.data.get("decoder", "wfst")
        if graph is not None and decoder not in ("wfst", "rescore"):
            raise ValueError("needs the decoder wfst or rescore")
        if graph is not None and known is not None and graph.name not in known:
            raise ValueError(f"there is no such graph; available: {', '.join(known) or 'none'}")
        return graph

    @field_validator("rescore")
    @classmethod
    def _is_read(cls, rescore: Rescoring | None, info: ValidationInfo) -> Rescoring | None:
        known, name = (info.context or {}).get("language_models"), rescore and rescore.language_model
        if name is not None and known is not None and name not in known:
            raise ValueError(f"there is no language model {name}; a bare name is a model's")
        return rescore

    @field_validator("nbest")
    @classmethod
    def _is_in_the_beam(cls, nbest: int, info: ValidationInfo) -> int:
        if nbest > 1 and info.data.get("decoder") == "greedy":
            raise ValueError("the greedy decoder keeps one hypothesis; use the beam decoder")
        if nbest > info.data.get("beam", nbest):
            raise ValueError(f"must not exceed the beam, which is {info.data['beam']}")
        return nbest

    @field_validator("alternatives", "lattice", "rescore")
    @classmethod
    def _needs_a_beam(cls, value: object, info: ValidationInfo) -> object:
        default = cls.model_fields[info.field_name or ""].default
        if value != default and info.data.get("decoder") == "greedy":
            raise ValueError("the greedy decoder keeps one path; use the beam decoder")
        return value

    @field_validator(
        *("alignments", "beta", "ctc_weight", "reverse_weight"),
        *("attention_weight", "transducer_weight", "search_ctc_weight"),
    )
    @classmethod
    def _is_of_the_decoder(cls, value: object, info: ValidationInfo) -> object:
        name = info.field_name or ""
        takers = {
            "alignments": ("beam",),
            "beta": ("beam", "rescore"),
            "ctc_weight": ("beam", "rescore"),
        }.get(name, ("rescore",))
        if value != cls.model_fields[name].default and info.data.get("decoder", takers[0]) not in takers:
            raise ValueError(f"needs the decoder {' or '.join(takers)}")
        return value

    @field_validator("lm_weight", "lm_blanks")
    @classmethod
    def _has_a_language_model(cls, value: float, info: ValidationInfo) -> float:
        default = cls.model_fields[info.field_name or ""].default
        if value != default and info.data.get("language_model", "") is None:
            raise ValueError("needs language_model, which is not set")
        return value

    @field_validator("boost")
    @classmethod
    def _says_something(cls, boost: Boost | None) -> Boost | None:
        return boost if boost and boost.phrases else None

    @model_validator(mode="after")
    def _fits_together(self) -> "AskedOptions":
        if self.decoder == "wfst" and self.graph is None:
            raise ValueError("graph: the decoder wfst needs a decoding graph")
        if self.decoder == "wfst" and self.alternatives:
            raise ValueError("alternatives: a graph search yields none; request its lattice")
        if self.language_model is not None or self.boost is not None:
            if self.graph is not None:
                raise ValueError("graph: cannot be combined with language_model or boost")
            if self.decoder == "greedy" and self.pruning == "early":
                raise ValueError("pruning: the greedy decoder has no beam to prune; use the beam decoder")
            if self.decoder == "greedy" and self.lm_blanks:
                raise ValueError("lm_blanks: the greedy decoder cannot score blanks; use the beam decoder")
            return self
        for name in ("pruning", "context"):
            if getattr(self, name) != type(self).model_fields[name].default:
                raise ValueError(f"{name}: needs language_model or boost, and neither is set")
        return self

    @property
    def phrases(self) -> PhraseList | None:
        """The phrase list that the job's options name."""
        return None if self.boost is None else self.boost.phrase_list

    def kept(self) -> JobOptions:
        """The options as a job keeps them."""
        options = {name: getattr(self, name) for name in _Options.model_fields}
        if self.align is not None:
            options["speech_detector"] = False  # no word of the text is dropped
        boost, align = self.boost and self.boost.kept, self.align and self.align.kept
        return JobOptions(**options, boost=boost, align=align)
