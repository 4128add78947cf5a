"""How a job is transcribed: its options, as a request sends them and as a job stores them.

Pure: the caller knows which models, language models and graphs exist.
"""

from collections.abc import Collection, Mapping
from typing import Annotated, Any, Literal, Self

from pydantic import BaseModel, ConfigDict, Field, JsonValue, ValidationInfo, field_validator, model_validator
from pydantic_core import InitErrorDetails, PydanticCustomError, ValidationError

from spool.domain.archive.alignment import AsksAlignment, KeepsAlignment
from spool.domain.archive.diarization import Diarization
from spool.domain.declaration import BEAMS, Option, find_refusals
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
_RESCORE = ("rescore",)
_FUSING = ("greedy", "beam", "rescore")
"""The decoders that take a language model and phrases."""


class Options(BaseModel):
    """Every option of a job. The only place where an option is named, typed, described, and given its range,
    its default and what it applies to (`spool.domain.declaration`).

    The HTTP schema, the flags of both commands, refusals and `docs/command-line.md` are derived from it.
    """

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
    language: Annotated[
        Language,
        Option("Options", metavar="CODE"),
        Field(description="The language spoken, such as `en`, or a list to choose among; `auto`: detect it."),
    ] = None
    decoder: Annotated[
        SearchName,
        Option("Options"),
        Field(
            description="How the model's output is searched. `beam` keeps several hypotheses; with Whisper, "
            "a beam of 5 makes fewer errors and takes longer. `rescore` orders the hypotheses of a CTC "
            "head's or WeNet transducer's beam by attention decoders, `attention` is the beam of such a "
            "decoder. `wfst` searches a decoding graph (`spool graph`).",
        ),
    ] = "greedy"
    beam: Annotated[
        int,
        Option("Options", decoders=BEAMS),
        Field(ge=1, le=32, strict=True, description="Number of hypotheses that the search keeps."),
    ] = 4
    head: Annotated[
        HeadName,
        Option("Search"),
        Field(description="Head to search. `auto` takes TDT, else RNNT, CTC, attention."),
    ] = "auto"
    nbest: Annotated[
        int,
        Option("Search", decoders=BEAMS),
        Field(
            ge=1,
            le=32,
            strict=True,
            description="Number of hypotheses of each chunk in the transcript; at most the beam.",
        ),
    ] = 1
    max_symbols: Annotated[
        int | None,
        Option("Search", decoders=("greedy", "beam"), heads=("tdt", "rnnt")),
        Field(
            ge=1,
            le=100,
            strict=True,
            description="The most tokens that a transducer writes in one frame. Default: the model's own.",
        ),
    ] = None
    alternatives: Annotated[
        int,
        Option("Search", decoders=("beam",)),
        Field(ge=0, le=20, strict=True, description="Number of alternatives to each word, from the beam."),
    ] = 0
    lattice: Annotated[
        float | None,
        Option("Search", decoders=("beam", "wfst"), metavar="DISTANCE"),
        Field(
            ge=0,
            le=1000,
            **_FINITE,
            description="Keep a lattice of each chunk: the words whose best path scores within this distance "
            "(natural logarithm) of the best path; 5 to 10 is usual.",
        ),
    ] = None
    alignments: Annotated[
        Literal["auto", "best", "all"],
        Option("Search", decoders=("beam",), heads=("ctc",)),
        Field(
            description="Score a hypothesis of a CTC head by its best alignment or by the sum of all; "
            "`auto` does what the model's own tools do."
        ),
    ] = "auto"
    beta: Annotated[
        float,
        Option("Search", decoders=("beam", "rescore"), heads=("ctc", "attention")),
        Field(
            ge=-100, le=100, description="Bonus for each token in the beam search of a CTC head.", **_FINITE
        ),
    ] = 0.0
    blank_penalty: Annotated[
        float,
        Option("Search", heads=("ctc", "attention")),
        Field(ge=0, le=100, description="Subtracted from the blank's logit of a CTC head.", **_FINITE),
    ] = 0.0
    ctc_weight: Annotated[
        float | None,
        Option("Search", decoders=("beam", "rescore")),
        Field(
            ge=0,
            le=100,
            description="Weight of the CTC score in rescoring. Default: 0.5. For a WeNet transducer: during "
            "the beam search, and of its score when the hypotheses are rescored. Default then: 0.",
            **_FINITE,
        ),
    ] = None
    attention_weight: Annotated[
        float,
        Option("Search", decoders=_RESCORE),
        Field(
            ge=0,
            le=100,
            description="Weight of the attention decoders in rescoring, both directions together; 0 leaves "
            "them out.",
            **_FINITE,
        ),
    ] = 1.0
    reverse_weight: Annotated[
        float | None,
        Option("Search", decoders=_RESCORE),
        Field(
            ge=0, le=1, description="Weight of the right-to-left decoder in rescoring. Default: 0.", **_FINITE
        ),
    ] = None
    transducer_weight: Annotated[
        float,
        Option("Search", decoders=_RESCORE, heads=("rnnt", "attention")),
        Field(
            ge=0,
            le=100,
            description="Weight of the log-likelihood over all alignments in rescoring a transducer's "
            "hypotheses.",
            **_FINITE,
        ),
    ] = 0.0
    search_ctc_weight: Annotated[
        float,
        Option("Search", decoders=_RESCORE, heads=("rnnt", "attention")),
        Field(
            ge=0,
            lt=1,
            description="Weight of the CTC head in the beam that finds the hypotheses of a transducer, "
            "before they are rescored.",
            **_FINITE,
        ),
    ] = 0.0
    patience: Annotated[
        float,
        Option("Search", decoders=("beam",), heads=("attention",)),
        Field(
            gt=0,
            le=10,
            **_FINITE,
            description="An attention decoder's beam ends with beam times patience finished hypotheses.",
        ),
    ] = 1.0
    length_penalty: Annotated[
        float | None,
        Option("Search", decoders=("beam", "attention"), heads=("attention", "ctc")),
        Field(
            ge=0,
            le=2,
            **_FINITE,
            description="Rank the hypotheses of an attention decoder by score / ((5 + tokens) / "
            "6)^length_penalty. Default: by their mean score (Whisper) or their score (Canary). With the "
            "decoder `attention`: by score / tokens^length_penalty. Default then: 0.",
        ),
    ] = None
    scores: Annotated[
        Literal["float", "fixed"],
        Option("Search"),
        Field(
            description="Add scores as 32-bit floats, or in fixed point (Q16.16), where the order of sums "
            "does not matter."
        ),
    ] = "float"
    rescore: Annotated[
        Rescoring | None,
        Option("Search", decoders=BEAMS, flag="rescore-model"),
        Field(
            description="A second model's attention decoder, an LSTM language model, or a language model of "
            "the project (`NAME@VERSION`) reads the beam's hypotheses of each chunk and orders them: "
            "`{model, weight}`."
        ),
    ] = None
    graph: Annotated[
        GraphSearch | None,
        Option("Decoding graph", decoders=("wfst", "rescore"), excludes=("language_model", "boost")),
        Field(description="A decoding graph, for the decoder `wfst`; `rescore` then orders its hypotheses."),
    ] = None
    task: Annotated[
        Literal["transcribe", "translate"],
        Option("Language"),
        Field(description="Write what is said, or its English translation; for models that can."),
    ] = "transcribe"
    translate_to: Annotated[
        str | None,
        Option("Language", families=("Canary",), metavar="CODE"),
        Field(
            pattern="^[a-z]{2,3}$",
            description="The language to translate into, such as `de` (Canary). Default: English.",
        ),
    ] = None
    punctuation: Annotated[
        bool,
        Option("Language", families=("Canary",)),
        Field(strict=True, description="Write punctuation and capitals (Canary)."),
    ] = True
    timestamps: Annotated[
        Literal["auto", "on", "off"],
        Option("Language", families=("Whisper", "Canary")),
        Field(
            description="Whether an attention decoder writes times among its tokens; `auto` decodes "
            "without them, and with them where that answer is unsure or leaves something out."
        ),
    ] = "auto"
    prompt: Annotated[
        str,
        Option("Language", families=("Whisper", "Canary")),
        Field(
            max_length=4000,
            description="Text that precedes the recording, for an attention decoder; for Canary also its "
            "prompt slots as a JSON object.",
        ),
    ] = ""
    hotwords: Annotated[
        str,
        Option("Words to expect", families=("Whisper",)),
        Field(max_length=4000, description="Words to expect, given to an attention decoder."),
    ] = ""
    language_model: Annotated[
        str | None,
        Option("Words to expect", decoders=_FUSING, metavar="NAME"),
        Field(
            min_length=1,
            max_length=200,
            description="An n-gram language model: one of the project as `NAME` or `NAME@VERSION`, or one "
            "from the settings.",
        ),
    ] = None
    lm_weight: Annotated[
        float,
        Option("Words to expect", needs=("language_model",), alias=("--alpha",)),
        Field(ge=0, le=10, description="Weight of the language model.", **_FINITE),
    ] = 0.3
    lm_blanks: Annotated[
        bool,
        Option("Words to expect", needs=("language_model",), decoders=("beam",), heads=("tdt", "rnnt")),
        Field(strict=True, description="Apply the language model to blanks too."),
    ] = False
    pruning: Annotated[
        Literal["late", "early"],
        Option(
            "Words to expect",
            needs=("language_model", "boost"),
            decoders=("beam",),
            heads=("tdt", "rnnt"),
        ),
        Field(
            description="Prune the beam after the scores of language model and phrases are added (`late`), "
            "or before (`early`)."
        ),
    ] = "late"
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
        recordings and the origin of phrases."""
        boost = self.boost and self.boost.model_copy(update={"glossary": None})
        checks = {"witness": False, "drop_unsupported": False}
        others = {"diarization": None, "on_truncated": "transcribe", "boost": boost}
        return self.model_copy(update={**checks, **others})


class AskedOptions(Options, AsksAlignment):
    """The options of a request, with the phrases and the existing transcript themselves.

    An unknown name is refused with `language_models` or `graphs` in the validation's context.
    """

    boost: Annotated[
        Boost | None,
        Option("Words to expect", decoders=_FUSING),
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
