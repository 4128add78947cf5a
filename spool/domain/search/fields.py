"""The options that decide how audio becomes words: those that all utterances of a device batch share, and
those of each utterance. A job has both (`spool.domain.options`), and so has the engine's request
(`worker.models.requests`)."""

from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field

from spool.domain.declaration import Option
from spool.domain.search.graph import GraphSearch
from spool.domain.search.searches import (
    ATTENTION_BEAM,
    BEAMS,
    CTC_ATTENTION,
    CTC_BEAM,
    CTC_BEAMS,
    CTC_GREEDY,
    FRAME_BEAM,
    FUSING,
    GRAPH_SEARCH,
    RESCORED,
    RESCORED_CTC,
    RESCORED_TRANSDUCER,
    TRANSDUCER_BEAM,
    TRANSDUCER_GREEDY,
    SearchName,
)
from spool.domain.transcript import Language

HeadName = Literal["auto", "tdt", "rnnt", "ctc", "attention"]
_FINITE: dict[str, Any] = {"strict": True, "allow_inf_nan": False}


class SearchFields(BaseModel):
    """How a batch is searched: utterances that differ in these are not decoded together."""

    model_config = ConfigDict(frozen=True, extra="forbid", defer_build=True)

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
        Option("Options", searches=BEAMS),
        Field(ge=1, le=32, strict=True, description="Number of hypotheses that the search keeps."),
    ] = 4
    head: Annotated[
        HeadName,
        Option("Search"),
        Field(description="Head to search. `auto` takes TDT, else RNNT, CTC, attention."),
    ] = "auto"
    nbest: Annotated[
        int,
        Option("Search", searches=BEAMS),
        Field(
            ge=1,
            le=32,
            strict=True,
            description="Number of hypotheses of each chunk in the transcript; at most the beam.",
        ),
    ] = 1
    max_symbols: Annotated[
        int | None,
        # A CTC head writes at most one a frame: it changes nothing there.
        Option("Search", searches=(*TRANSDUCER_GREEDY, *TRANSDUCER_BEAM, CTC_GREEDY, *CTC_BEAMS)),
        Field(
            ge=1,
            le=100,
            strict=True,
            description="The most tokens that a transducer writes in one frame. Default: the model's own.",
        ),
    ] = None
    alignments: Annotated[
        Literal["auto", "best", "all"],
        Option("Search", searches=CTC_BEAMS),
        Field(
            description="Score a hypothesis of a CTC head by its best alignment or by the sum of all; "
            "`auto` does what the model's own tools do."
        ),
    ] = "auto"
    beta: Annotated[
        float,
        Option("Search", searches=(*CTC_BEAMS, RESCORED_CTC)),
        Field(
            ge=-100, le=100, description="Bonus for each token in the beam search of a CTC head.", **_FINITE
        ),
    ] = 0.0
    blank_penalty: Annotated[
        float,
        Option("Search", searches=(CTC_GREEDY, *CTC_BEAMS, GRAPH_SEARCH, RESCORED_CTC)),
        Field(ge=0, le=100, description="Subtracted from the blank's logit of a CTC head.", **_FINITE),
    ] = 0.0
    ctc_weight: Annotated[
        float | None,
        Option("Search", searches=(FRAME_BEAM, *RESCORED)),
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
        Option("Search", searches=RESCORED),
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
        Option("Search", searches=RESCORED),
        Field(
            ge=0, le=1, description="Weight of the right-to-left decoder in rescoring. Default: 0.", **_FINITE
        ),
    ] = None
    transducer_weight: Annotated[
        float,
        Option("Search", searches=(RESCORED_TRANSDUCER,)),
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
        Option("Search", searches=(RESCORED_TRANSDUCER,)),
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
        Option("Search", searches=(ATTENTION_BEAM,)),
        Field(
            gt=0,
            le=10,
            **_FINITE,
            description="An attention decoder's beam ends with beam times patience finished hypotheses.",
        ),
    ] = 1.0
    length_penalty: Annotated[
        float | None,
        Option("Search", searches=(CTC_ATTENTION, ATTENTION_BEAM)),
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
        Option(
            "Search",
            searches=(*TRANSDUCER_GREEDY, *TRANSDUCER_BEAM, CTC_GREEDY, *CTC_BEAMS, RESCORED_CTC),
        ),
        Field(
            description="Add scores as 32-bit floats, or in fixed point (Q16.16), where the order of sums "
            "does not matter."
        ),
    ] = "float"
    graph: Annotated[
        GraphSearch | None,
        Option("Decoding graph", searches=(GRAPH_SEARCH, RESCORED_CTC), excludes=("language_model", "boost")),
        Field(description="A decoding graph, for the decoder `wfst`; `rescore` then orders its hypotheses."),
    ] = None
    lm_blanks: Annotated[
        bool,
        Option("Words to expect", needs=("language_model",), searches=TRANSDUCER_BEAM),
        Field(strict=True, description="Apply the language model to blanks too."),
    ] = False
    pruning: Annotated[
        Literal["late", "early"],
        Option("Words to expect", needs=("language_model", "boost"), searches=TRANSDUCER_BEAM),
        Field(
            description="Prune the beam after the scores of language model and phrases are added (`late`), "
            "or before (`early`)."
        ),
    ] = "late"


class UtteranceFields(BaseModel):
    """What the model and the search do for an utterance, beside how its batch is searched."""

    model_config = ConfigDict(frozen=True, extra="forbid", defer_build=True)

    language: Annotated[
        Language,
        Option("Options", metavar="CODE"),
        Field(description="The language spoken, such as `en`, or a list to choose among; `auto`: detect it."),
    ] = None
    alternatives: Annotated[
        int,
        Option("Search", searches=(*TRANSDUCER_BEAM, CTC_BEAM)),
        Field(ge=0, le=20, strict=True, description="Number of alternatives to each word, from the beam."),
    ] = 0
    lattice: Annotated[
        float | None,
        Option("Search", searches=(*TRANSDUCER_BEAM, CTC_BEAM, GRAPH_SEARCH), metavar="DISTANCE"),
        Field(
            ge=0,
            le=1000,
            **_FINITE,
            description="Keep a lattice of each chunk: the words whose best path scores within this distance "
            "(natural logarithm) of the best path; 5 to 10 is usual.",
        ),
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
    audio_context: Annotated[
        Literal["sound", "full"],
        Option("Search", families=("Whisper",)),
        Field(
            description="What Whisper's encoder hears of a window of 30 s: the `sound` and at least 8 s of "
            "silence behind it, or the `full` window as in OpenAI's code, which takes longer. Where the "
            "language has to be detected, it hears the full window."
        ),
    ] = "sound"
    language_model: Annotated[
        str | None,
        Option("Words to expect", searches=FUSING, metavar="NAME"),
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
