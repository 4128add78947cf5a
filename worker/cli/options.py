"""Options of `spool-worker transcribe`, and their texts in its help."""

from enum import StrEnum
from pathlib import Path
from typing import Annotated, Literal

import typer


class DecoderName(StrEnum):
    """Search method."""

    greedy = "greedy"
    beam = "beam"
    rescore = "rescore"
    attention = "attention"


class HeadName(StrEnum):
    """Which of the model's heads to search; auto takes TDT, else RNNT, CTC, attention."""

    auto = "auto"
    tdt = "tdt"
    rnnt = "rnnt"
    ctc = "ctc"
    attention = "attention"


class AlignmentsName(StrEnum):
    """What scores a hypothesis of a CTC head's beam; auto is what the model's own tools do."""

    auto = "auto"
    best = "best"
    all = "all"


class TimestampsName(StrEnum):
    """Whether the decoder emits timestamp tokens."""

    auto = "auto"
    on = "on"
    off = "off"


class ScoresName(StrEnum):
    """How scores are summed."""

    float = "float"
    fixed = "fixed"


class FormatName(StrEnum):
    """Output format."""

    json = "json"
    txt = "txt"
    srt = "srt"
    vtt = "vtt"
    paragraphs = "paragraphs"
    tsv = "tsv"
    ctm = "ctm"
    ttml = "ttml"
    rttm = "rttm"
    lattice = "lattice"
    kaldi = "kaldi"


class LatticeName(StrEnum):
    """How lattices are written into the JSON."""

    json = "json"
    kaldi = "kaldi"


class PruningName(StrEnum):
    """When language model and phrases are fused."""

    late = "late"
    early = "early"


class ContextName(StrEnum):
    """Where language model and phrases start over."""

    chunk = "chunk"
    job = "job"


LatticeForm = Annotated[
    LatticeName | None,
    typer.Option(
        help="Add the lattice of each chunk to the JSON. --format lattice or kaldi prints lattices alone."
    ),
]
Prune = Annotated[
    float | None,
    typer.Option(min=0, help="Pruning beam of lattices, in natural logarithm. Default: 5."),
]
# What attention decoders take.
Patience = Annotated[
    float, typer.Option(help="Stop the beam at beam x patience finished hypotheses (attention decoders).")
]
LengthPenalty = Annotated[
    float | None,
    typer.Option(
        help="Rank hypotheses by score / ((5 + tokens) / 6)^alpha with this alpha. Default: by mean score "
        "(Whisper) or by score (Canary). With --decoder attention: by score / tokens^alpha. Default: 0."
    ),
]
# What CTC heads take, and attention decoders beside them.
Alignments = Annotated[
    AlignmentsName,
    typer.Option(help="Score a hypothesis of a CTC beam by its best alignment or by the sum of all."),
]
CtcWeight = Annotated[
    float | None,
    typer.Option(
        help="Weight of the CTC score in rescoring (default 0.5) or in a WeNet transducer's beam (default 0)."
    ),
]
ReverseWeight = Annotated[
    float | None,
    typer.Option(help="Weight of the right-to-left decoder in rescoring. Default: 0."),
]
AttContext = Annotated[
    str | None,
    typer.Option(
        metavar="LEFT,RIGHT",
        help="Attention context of a cache-aware model, in encoder frames, such as 70,13. "
        "Default: the model's first.",
    ),
]
Language = Annotated[
    str | None,
    typer.Option(help="Language spoken, such as en; en,de chooses among these. Default: auto (detect it)."),
]
Task = Annotated[
    Literal["transcribe", "translate"],
    typer.Option(help="Transcribe, or translate (into English by default)."),
]
TranslateTo = Annotated[
    str | None, typer.Option(help="Language to translate into, such as de (Canary). Default: English.")
]
Punctuation = Annotated[bool, typer.Option(help="Write punctuation and capitals (Canary).")]
Timestamps = Annotated[
    TimestampsName,
    typer.Option(help="Decode with timestamp tokens (attention decoders); auto decodes with and without."),
]
Files = Annotated[list[Path], typer.Argument(metavar="FILE...", help="Recordings to transcribe.")]
Model = Annotated[
    str, typer.Option(help="Folder of a model, a .nemo file, a name in the catalogue or a hub id.")
]
Decoder = Annotated[DecoderName, typer.Option(help="Search method.")]
Beam = Annotated[int, typer.Option(min=1, help="Beam width.")]
Nbest = Annotated[int, typer.Option(min=1, help="Number of hypotheses to report.")]
Head = Annotated[HeadName, typer.Option(help="Head to search. auto prefers TDT, then RNNT, CTC, attention.")]
Beta = Annotated[float, typer.Option(help="Bonus for each token in the beam search of a CTC head.")]
Scores = Annotated[ScoresName, typer.Option(help="Sum scores in float32 or in Q16.16 fixed point.")]
Alternatives = Annotated[int, typer.Option(min=0, help="Number of alternatives to report for each word.")]
LanguageModel = Annotated[
    Path | None, typer.Option(help="ARPA file of an n-gram language model over the model's tokens.")
]
LmWeight = Annotated[float, typer.Option(help="Weight of the language model.")]
LmBlanks = Annotated[bool, typer.Option("--lm-blanks", help="Apply the language model to blanks too.")]
Boost = Annotated[
    list[str] | None, typer.Option(metavar="PHRASE", help="Phrase to boost; repeat for several.")
]
BoostFile = Annotated[Path | None, typer.Option(help="File of phrases to boost, one per line.")]
BoostWeight = Annotated[float, typer.Option(help="Weight of boosted phrases.")]
Pruning = Annotated[
    PruningName,
    typer.Option(help="Fuse before the beam is pruned (late) or after (early)."),
]
Context = Annotated[
    ContextName,
    typer.Option(help="Reset language model and phrases at each chunk, or carry them through the file."),
]
Prompt = Annotated[
    str,
    typer.Option(help="Text that precedes the recording; for Canary also its prompt slots as a JSON object."),
]
Hotwords = Annotated[str, typer.Option(help="Words to expect (attention decoders).")]
Detector = Annotated[
    bool,
    typer.Option(
        "--speech-detector/--no-speech-detector",
        help="Do not decode stretches without speech, and drop segments invented there (only in chunks).",
    ),
]
Diarize = Annotated[
    bool,
    typer.Option("--diarize", help="Tell speakers apart. --speakers and --format rttm imply it."),
]
Diarizer = Annotated[
    str,
    typer.Option(
        metavar="NAME|FILE",
        help="What tells speakers apart: default, or a Sortformer (sortformer, a name of the catalogue, or a "
        ".nemo file). Implies --diarize.",
    ),
]
Split = Annotated[
    bool,
    typer.Option(help="Split at silences. --no-chunk decodes each file whole, all files as one batch."),
]
Format = Annotated[FormatName, typer.Option("--format", help="Output format.")]
