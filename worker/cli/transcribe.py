"""`spool-worker transcribe`: the engine with no queue.

Knows options, printing and the exit code; `worker.local.transcribe` does the work.
"""

from enum import StrEnum
from pathlib import Path
from typing import Annotated, Literal

import typer

from spool.errors import InvalidRequest
from worker.decode.types import DecodeRequest, FusionOptions, SearchOptions
from worker.local.report import render_results
from worker.machine.blas import preload_blas
from worker.models.base import SpeechOptions

PRUNE = 5.0


class DecoderName(StrEnum):
    """Search method."""

    greedy = "greedy"
    beam = "beam"


class HeadName(StrEnum):
    """Which of the model's heads to search; auto takes TDT, else RNNT, CTC, attention."""

    auto = "auto"
    tdt = "tdt"
    rnnt = "rnnt"
    ctc = "ctc"
    attention = "attention"


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
        help="Rank hypotheses by score / ((5 + tokens) / 6)^alpha with this alpha. Default: by mean score."
    ),
]
Language = Annotated[str | None, typer.Option(help="Language spoken, such as en. Default: detect it.")]
Task = Annotated[
    Literal["transcribe", "translate"],
    typer.Option(help="Transcribe, or translate into English."),
]
Timestamps = Annotated[
    TimestampsName,
    typer.Option(help="Decode with timestamp tokens (attention decoders); auto decodes with and without."),
]


def transcribe(
    files: Annotated[list[Path], typer.Argument(metavar="FILE...", help="Recordings to transcribe.")],
    model: Annotated[
        str, typer.Option(help="Folder of a model, a .nemo file, a name in the catalogue or a hub id.")
    ],
    decoder: Annotated[DecoderName, typer.Option(help="Search method.")] = DecoderName.greedy,
    beam: Annotated[int, typer.Option(min=1, help="Beam width.")] = 4,
    nbest: Annotated[int, typer.Option(min=1, help="Number of hypotheses to report.")] = 1,
    head: Annotated[
        HeadName, typer.Option(help="Head to search. auto prefers TDT, then RNNT, CTC, attention.")
    ] = HeadName.auto,
    beta: Annotated[float, typer.Option(help="Bonus for each token in the beam search of a CTC head.")] = 0.0,
    scores: Annotated[
        ScoresName, typer.Option(help="Sum scores in float32 or in Q16.16 fixed point.")
    ] = ScoresName.float,
    alternatives: Annotated[
        int, typer.Option(min=0, help="Number of alternatives to report for each word.")
    ] = 0,
    lattice: LatticeForm = None,
    prune: Prune = None,
    lm: Annotated[
        Path | None, typer.Option(help="ARPA file of an n-gram language model over the model's tokens.")
    ] = None,
    alpha: Annotated[float, typer.Option(help="Weight of the language model.")] = 0.3,
    lm_blanks: Annotated[
        bool, typer.Option("--lm-blanks", help="Apply the language model to blanks too.")
    ] = False,
    boost: Annotated[
        list[str] | None, typer.Option(metavar="PHRASE", help="Phrase to boost; repeat for several.")
    ] = None,
    boost_file: Annotated[Path | None, typer.Option(help="File of phrases to boost, one per line.")] = None,
    boost_weight: Annotated[float, typer.Option(help="Weight of boosted phrases.")] = 1.0,
    pruning: Annotated[
        PruningName,
        typer.Option(help="Fuse before the beam is pruned (late) or after (early)."),
    ] = PruningName.late,
    context: Annotated[
        ContextName,
        typer.Option(help="Reset language model and phrases at each chunk, or carry them through the file."),
    ] = ContextName.chunk,
    patience: Patience = 1.0,
    length_penalty: LengthPenalty = None,
    language: Language = None,
    task: Task = "transcribe",
    timestamps: Timestamps = TimestampsName.auto,
    prompt: Annotated[str, typer.Option(help="Text that precedes the recording.")] = "",
    hotwords: Annotated[str, typer.Option(help="Words to expect (attention decoders).")] = "",
    chunk: Annotated[
        bool,
        typer.Option(help="Split at silences. --no-chunk decodes each file whole, all files as one batch."),
    ] = True,
    form: Annotated[FormatName, typer.Option("--format", help="Output format.")] = FormatName.json,
) -> None:
    """Transcribe files without a queue. A file that fails does not stop the others; the exit code is then
    1."""
    # The BLAS must be there before MLX, which comes in with worker.local.transcribe.
    preload_blas()
    from worker.local.transcribe import transcribe_files

    fusion = FusionOptions(
        lm=None if lm is None else str(lm),
        alpha=alpha,
        weighted=lm_blanks,
        phrases=(*(boost or ()), *_phrases(boost_file)),
        boost=boost_weight,
        pruning=pruning.value,
    )
    options = SearchOptions(
        decoder=decoder.value,
        beam=beam,
        nbest=nbest,
        head=head.value,
        beta=beta,
        scores=scores.value,
        patience=patience,
        length_penalty=length_penalty,
        fusion=fusion if fusion.asks else None,
    )
    speech = SpeechOptions(language, task, timestamps.value, prompt, hotwords)
    ask = DecodeRequest(alternatives=alternatives, lattice=_reach(form, lattice, prune), speech=speech)
    carries = context is ContextName.job
    results = transcribe_files(files, model, options, chunk=chunk, ask=ask, carries=carries)
    typer.echo(render_results(results, form.value, lattice and lattice.value))
    if any(result.error for result in results):
        raise typer.Exit(1)


def _reach(form: FormatName, lattice: LatticeName | None, prune: float | None) -> float | None:
    """The pruning beam of lattices, None if there are to be none. Raises InvalidRequest."""
    alone = form in (FormatName.lattice, FormatName.kaldi)
    if lattice is not None and form is not FormatName.json:
        raise InvalidRequest("--lattice needs --format json; --format lattice or kaldi prints lattices alone")
    if lattice is None and not alone:
        if prune is not None:
            raise InvalidRequest("--prune needs --lattice, or --format lattice or kaldi")
        return None
    return PRUNE if prune is None else prune


def _phrases(path: Path | None) -> tuple[str, ...]:
    """The lines of a text file. Raises InvalidRequest."""
    if path is None:
        return ()
    try:
        return tuple(line for line in path.read_text(encoding="utf-8").splitlines() if line.strip())
    except UnicodeDecodeError as error:
        raise InvalidRequest(f"{path}: not UTF-8 text") from error
    except OSError as error:
        raise InvalidRequest(f"{path}: the phrases cannot be read: {error.strerror}") from error
