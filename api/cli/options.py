"""Options that several subcommands share, each defined once as the field of a dataclass.

A command has the dataclass as one of its parameters; `spool.command_options` shows its fields to Typer. The
server validates the values.
"""

from collections.abc import Sequence
from dataclasses import dataclass, fields
from functools import partial
from pathlib import Path
from typing import Annotated, Any, Literal

import typer

from api.cli.completion import complete_model
from spool.command_options import read_phrases
from spool.domain.archive.diarization import MOST_SPEAKERS
from spool.domain.priority import PriorityName
from spool.domain.transcript import language_of_text
from spool.errors import InvalidRequest

# The panels of `--help`; the most common options have none and come first.
_order = partial(typer.Option, rich_help_panel="Routing and order")
_search = partial(typer.Option, rich_help_panel="Search")
_recording = partial(typer.Option, rich_help_panel="Recording")
_words = partial(typer.Option, rich_help_panel="Phrases and language models")
_speakers = partial(typer.Option, rich_help_panel="Speakers")

Diarize = Annotated[
    bool, _speakers("--diarize", help="Tell speakers apart. The options about speakers imply it.")
]
SpeakerCount = Annotated[
    int | None, _speakers(min=1, max=MOST_SPEAKERS, help="The exact number of speakers.")
]
LeastSpeakers = Annotated[
    int | None, _speakers(min=1, max=MOST_SPEAKERS, help="The smallest number of speakers.")
]
MostSpeakers = Annotated[
    int | None, _speakers(min=1, max=MOST_SPEAKERS, help="The largest number of speakers.")
]
Diarizer = Annotated[
    str | None,
    _speakers(
        metavar="NAME",
        help="What tells speakers apart: default, or sortformer for up to four speakers, overlap too.",
    ),
]
VoicePrints = Annotated[
    bool,
    _speakers(
        "--voice-prints", help="Keep a voice print of each speaker, to recognise voices that you named."
    ),
]
WithinChannels = Annotated[
    bool,
    _speakers(
        "--within-channels",
        help="Tell speakers apart within each separate channel; else each is one speaker.",
    ),
]


DELETED = {
    "all": "the recordings and transcripts",
    "source": "the recordings",
    "transcript": "the transcripts",
}
Copies = Annotated[
    bool,
    typer.Option(
        "--copies", help="Delete the transcripts of jobs that reused these, or that these reused, too."
    ),
]
Yes = Annotated[bool, typer.Option("--yes", help="Do not ask for confirmation.")]


@dataclass(frozen=True, slots=True)
class Search:
    """Options of the search."""

    model: Annotated[
        str | None,
        typer.Option(
            autocompletion=complete_model, help="Name of a model on the server. Default: the default model."
        ),
    ] = None
    decoder: Annotated[
        Literal["greedy", "beam", "rescore", "attention", "wfst"] | None,
        typer.Option(
            help="Search method. Default: greedy. With Whisper, beam with --beam 5 makes fewer errors and "
            "takes longer."
        ),
    ] = None
    head: Annotated[
        Literal["auto", "tdt", "rnnt", "ctc", "attention"] | None,
        _search(help="Head of the model to search. Default: TDT, else RNNT, CTC, attention."),
    ] = None
    alignments: Annotated[
        Literal["auto", "best", "all"] | None,
        _search(help="Score a hypothesis of a CTC beam by its best alignment or by the sum over all."),
    ] = None
    beta: Annotated[float | None, _search(help="Bonus for each token in the beam search of a CTC head.")] = (
        None
    )
    blank_penalty: Annotated[
        float | None, _search(min=0, help="Subtracted from the blank's logit of a CTC head.")
    ] = None
    ctc_weight: Annotated[
        float | None,
        _search(
            help="Weight of the CTC score in rescoring (default 0.5), or in a WeNet transducer's beam "
            "(default 0); with --head rnnt --decoder rescore, of that beam's score (default 0)."
        ),
    ] = None
    reverse_weight: Annotated[
        float | None, _search(help="Weight of the right-to-left decoder in rescoring. Default: 0.")
    ] = None
    attention_weight: Annotated[
        float | None,
        _search(min=0, help="Weight of the attention decoders in rescoring; 0 leaves them out. Default: 1."),
    ] = None
    transducer_weight: Annotated[
        float | None,
        _search(
            help="Weight of the transducer's log-likelihood over all alignments, with --head rnnt --decoder "
            "rescore."
        ),
    ] = None
    search_ctc_weight: Annotated[
        float | None,
        _search(
            min=0, help="Weight of the CTC head in the transducer's beam, with --head rnnt --decoder rescore."
        ),
    ] = None
    graph: Annotated[
        str | None, _search(metavar="NAME", help="Name of a decoding graph on the server (wfst, rescore).")
    ] = None
    rescore_model: Annotated[
        str | None,
        _search(
            metavar="NAME",
            help="Model whose attention decoder orders the beam's hypotheses, an LSTM language model, or a "
            "language model of the project as NAME@VERSION.",
        ),
    ] = None
    rescore_weight: Annotated[float | None, _search(help="Weight of its log-probability. Default: 0.5.")] = (
        None
    )
    beam: Annotated[int | None, _search(min=1, max=32, help="Beam width.")] = None
    channels: Annotated[
        Literal["mix", "separate"] | None,
        typer.Option(help="Mix the channels, or transcribe each separately."),
    ] = None
    nbest: Annotated[
        int | None, _search(min=1, max=32, help="Number of hypotheses to keep for each chunk.")
    ] = None
    alternatives: Annotated[
        int | None, _search(min=0, max=20, help="Number of alternatives to keep for each word.")
    ] = None
    lattice: Annotated[
        float | None, _search(min=0, metavar="PRUNE", help="Keep lattices, pruned to this beam; 5 is usual.")
    ] = None
    boost: Annotated[
        list[str] | None, _words(metavar="PHRASE", help="Word or phrase to boost; repeat for several.")
    ] = None
    boost_file: Annotated[Path | None, _words(help="File of words and phrases to boost, one per line.")] = (
        None
    )
    glossary: Annotated[
        str | None,
        _words(metavar="NAME[@VERSION]", help="Boost a glossary of the project (`spool glossary`)."),
    ] = None
    boost_weight: Annotated[float | None, _words(help="Weight of boosted phrases. Default: 1.")] = None
    language_model: Annotated[
        str | None, _words(metavar="NAME", help="Name of a language model on the server.")
    ] = None
    lm_weight: Annotated[float | None, _words(help="Weight of the language model.")] = None
    lm_blanks: Annotated[bool, _words("--lm-blanks", help="Apply the language model to blanks too.")] = False
    pruning: Annotated[
        Literal["late", "early"] | None,
        _search(help="Fuse before the beam is pruned (late) or after (early)."),
    ] = None
    context: Annotated[
        Literal["chunk", "job"] | None,
        _words(help="Reset language model and phrases at each chunk, or carry them through the job."),
    ] = None
    speech_detector: Annotated[
        bool | None,
        _recording(
            "--speech-detector/--no-speech-detector",
            help="Do not decode stretches without speech, and drop segments invented there.",
        ),
    ] = None
    scores: Annotated[
        Literal["float", "fixed"] | None, _search(help="Sum scores in float32 or in fixed point.")
    ] = None

    language: Annotated[
        str | None,
        typer.Option(
            help="Language spoken, such as en; en,de chooses among these. Default: auto (detect it)."
        ),
    ] = None
    task: Annotated[
        Literal["transcribe", "translate"] | None,
        typer.Option(help="Transcribe, or translate into English (models that can)."),
    ] = None
    timestamps: Annotated[
        Literal["auto", "on", "off"] | None,
        _search(help="Decode with timestamp tokens (attention decoders); auto decodes with and without."),
    ] = None
    prompt: Annotated[str | None, _search(help="Text that precedes the recording (attention decoders).")] = (
        None
    )
    hotwords: Annotated[str | None, _words(help="Words to expect (attention decoders).")] = None
    patience: Annotated[
        float | None,
        _search(help="Stop the beam at beam x patience finished hypotheses (attention decoders)."),
    ] = None
    length_penalty: Annotated[
        float | None,
        _search(
            help="Rank hypotheses by score / ((5 + tokens) / 6)^alpha with this alpha (attention decoders)."
        ),
    ] = None
    on_truncated: Annotated[
        Literal["transcribe", "fail"] | None,
        _recording(help="If a recording is cut off: transcribe what is there, or fail."),
    ] = None
    diarize: Diarize = False
    speakers: SpeakerCount = None
    min_speakers: LeastSpeakers = None
    max_speakers: MostSpeakers = None
    within_channels: WithinChannels = False
    diarizer: Diarizer = None
    voice_prints: VoicePrints = False

    def to_request(self) -> dict[str, Any]:
        """The `options` of the request that were given. Raises InvalidRequest."""
        chosen = {field.name: getattr(self, field.name) for field in fields(self)}
        if self.language is not None:
            chosen["language"] = language_of_text(self.language) or "auto"
        phrases = [*(chosen.pop("boost") or ()), *read_phrases(chosen.pop("boost_file"))]
        boost = boost_of(phrases, chosen.pop("glossary"), chosen.pop("boost_weight"))
        chosen |= {"boost": boost, "lm_blanks": self.lm_blanks or None}
        chosen["graph"] = self.graph and {"name": self.graph}
        second, weight = chosen.pop("rescore_model"), chosen.pop("rescore_weight")
        if second is not None:
            chosen["rescore"] = {"model": second} | ({} if weight is None else {"weight": weight})
        elif weight is not None:
            raise InvalidRequest("--rescore-weight needs --rescore-model")
        counts = [chosen.pop(name) for name in ("speakers", "min_speakers", "max_speakers")]
        within, diarizer = chosen.pop("within_channels"), chosen.pop("diarizer")
        prints = chosen.pop("voice_prints")
        asked = chosen.pop("diarize") or within or diarizer or prints or any(counts)
        chosen["diarization"] = (
            diarization_of(*counts, within=within, model=diarizer, prints=prints) if asked else None
        )
        return {name: value for name, value in chosen.items() if value is not None}


@dataclass(frozen=True, slots=True)
class Place:
    """Project, tags, order and routing of jobs."""

    project: Annotated[
        str | None, typer.Option(help="Project that is charged. Default: the key's project, else `default`.")
    ] = None
    tag: Annotated[
        list[str] | None,
        typer.Option(metavar="NAME=VALUE", help="Tag to keep with each job; repeat for several."),
    ] = None
    pool: Annotated[
        str | None, _order(help="Pool of workers to use. Default: any worker that has the model.")
    ] = None
    worker: Annotated[str | None, _order(help="Name of the only worker that may run it.")] = None
    requires: Annotated[
        str | None,
        _order(metavar="NAME=VALUE,…", help="Required machine: backend=metal,chip=M4,memory_gb=16."),
    ] = None
    priority: Annotated[PriorityName | None, _order(help="Order among the project's own jobs.")] = None
    deadline: Annotated[
        str | None, _order(metavar="TIME", help="Time by which it should be done, such as 2026-11-20T18:00Z.")
    ] = None

    def to_request(self) -> dict[str, Any]:
        """The fields of the request. Raises InvalidRequest."""
        pairs = self.tag or []
        if any("=" not in pair for pair in pairs):
            raise InvalidRequest("--tag must have the form NAME=VALUE.")
        tags = dict(pair.split("=", 1) for pair in pairs)
        fields: dict[str, Any] = {
            "project": self.project,
            "pool": self.pool,
            "worker": self.worker,
            "tags": tags,
        }
        if self.requires is not None:
            fields["requires"] = _requirement(self.requires)
        return fields | {"priority": self.priority, "deadline": self.deadline}


def _requirement(text: str) -> dict[str, str | int]:
    """Parse `--requires`. Raises InvalidRequest."""
    pairs = [pair.partition("=") for pair in text.split(",")]
    if any(not name.strip() or not value.strip() for name, _, value in pairs):
        raise InvalidRequest("--requires is a list such as backend=metal,memory_gb=16.")
    values = {name.strip(): value.strip() for name, _, value in pairs}
    return {name: int(value) if value.isdecimal() else value for name, value in values.items()}


def diarization_of(
    speakers: int | None,
    least: int | None,
    most: int | None,
    *,
    within: bool,
    model: str | None = None,
    prints: bool = False,
) -> dict[str, Any]:
    """The request's `diarization`. Raises InvalidRequest for options that contradict each other."""
    if speakers is not None and (least, most) != (None, None):
        raise InvalidRequest("--speakers is the exact number: leave --min-speakers and --max-speakers out.")
    bounds = {name: value for name, value in (("min", least), ("max", most)) if value is not None}
    asked: dict[str, Any] = {"speakers": speakers or bounds or None, "within_channels": within or None}
    asked |= {"model": model, "voice_prints": prints or None}
    return {name: value for name, value in asked.items() if value is not None}


def boost_of(phrases: Sequence[str], glossary: str | None, weight: float | None) -> dict[str, Any] | None:
    """The `boost` of the request; None if it names no phrases. Raises InvalidRequest."""
    if not phrases and glossary is None:
        if weight is not None:
            raise InvalidRequest("--boost-weight needs --boost, --boost-file or --glossary.")
        return None
    asked = {"phrases": list(phrases) or None, "glossary": glossary, "weight": weight}
    return {name: value for name, value in asked.items() if value is not None}
