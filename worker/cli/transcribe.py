"""`spool-worker transcribe`: the engine with no queue.

Knows options, printing and the exit code; `worker.local.transcribe` does the work.
"""

from enum import StrEnum
from pathlib import Path
from typing import Annotated, Literal

import typer

from spool.errors import InvalidRequest
from worker.cli.speakers import LeastSpeakers, MostSpeakers, SpeakerCount, diarization_of
from worker.decode.types import DecodeRequest, FusionOptions, SearchOptions
from worker.local.report import render_results
from worker.machine.blas import preload_blas
from worker.models.base import SpeechOptions

PRUNE = 5.0


class DecoderName(StrEnum):
    """How to search."""

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
    """Whether the decoder writes times among its tokens."""

    auto = "auto"
    on = "on"
    off = "off"


class ScoresName(StrEnum):
    """How scores are added up."""

    float = "float"
    fixed = "fixed"


class FormatName(StrEnum):
    """What to print."""

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
    """When language model and phrases have their say."""

    late = "late"
    early = "early"


class ContextName(StrEnum):
    """Where language model and phrases start over."""

    chunk = "chunk"
    job = "job"


LatticeForm = Annotated[
    LatticeName | None,
    typer.Option(help="Add each chunk's lattice to the JSON; --format lattice or kaldi prints it alone."),
]
Prune = Annotated[
    float | None,
    typer.Option(min=0, help="How far behind the best path a lattice reaches, natural logarithm; 5."),
]
Scores = Annotated[ScoresName, typer.Option(help="How scores are added up: float32, or Q16.16 fixed point.")]
Alternatives = Annotated[
    int, typer.Option(min=0, help="Other words that the beam heard in place of each one.")
]
Context = Annotated[
    ContextName,
    typer.Option(help="Let language model and phrases go on from chunk to chunk (job), one at a time."),
]
Diarize = Annotated[
    bool, typer.Option("--diarize", help="Tell speakers apart; --speakers and --format rttm do too.")
]
# What attention decoders take.
Patience = Annotated[
    float, typer.Option(help="A beam ends with beam x patience finished hypotheses (attention decoders).")
]
LengthPenalty = Annotated[
    float | None,
    typer.Option(help="Alpha of ((5 + tokens) / 6)^alpha, which ranks hypotheses; by default the mean."),
]
Language = Annotated[str | None, typer.Option(help="The language spoken, such as en; detected by default.")]
Task = Annotated[
    Literal["transcribe", "translate"],
    typer.Option(help="Write what is said, or its English translation."),
]
Timestamps = Annotated[
    TimestampsName, typer.Option(help="Let an attention decoder write times; auto asks with and without.")
]


def transcribe(
    files: Annotated[list[Path], typer.Argument(metavar="FILE...", help="Recordings to transcribe.")],
    model: Annotated[str, typer.Option(help="A model's folder, a .nemo file or a hub id.")],
    decoder: Annotated[DecoderName, typer.Option(help="How to search.")] = DecoderName.greedy,
    beam: Annotated[int, typer.Option(min=1, help="Hypotheses kept by the beam search.")] = 4,
    nbest: Annotated[int, typer.Option(min=1, help="Hypotheses to report.")] = 1,
    head: Annotated[HeadName, typer.Option(help="Which head to search.")] = HeadName.auto,
    beta: Annotated[float, typer.Option(help="What a CTC head's beam adds for each token.")] = 0.0,
    scores: Scores = ScoresName.float,
    alternatives: Alternatives = 0,
    lattice: LatticeForm = None,
    prune: Prune = None,
    lm: Annotated[
        Path | None, typer.Option(help="An n-gram language model over the model's tokens, an ARPA file.")
    ] = None,
    alpha: Annotated[float, typer.Option(help="The language model's weight.")] = 0.3,
    lm_blanks: Annotated[
        bool, typer.Option("--lm-blanks", help="Let the language model have a say in blanks too.")
    ] = False,
    boost: Annotated[
        list[str] | None, typer.Option(metavar="PHRASE", help="Favour a phrase; repeat.")
    ] = None,
    boost_file: Annotated[Path | None, typer.Option(help="Favour phrases, one a line.")] = None,
    boost_weight: Annotated[float, typer.Option(help="How much phrases are favoured.")] = 1.0,
    pruning: Annotated[
        PruningName,
        typer.Option(help="Fuse before the beam is cut (late) or only order what is left (early)."),
    ] = PruningName.late,
    context: Context = ContextName.chunk,
    patience: Patience = 1.0,
    length_penalty: LengthPenalty = None,
    language: Language = None,
    task: Task = "transcribe",
    timestamps: Timestamps = TimestampsName.auto,
    prompt: Annotated[str, typer.Option(help="Text that came before the recording.")] = "",
    hotwords: Annotated[str, typer.Option(help="Words to expect, for an attention decoder.")] = "",
    chunk: Annotated[
        bool, typer.Option(help="Cut at silences; --no-chunk decodes all files whole, as one batch.")
    ] = True,
    diarize: Diarize = False,
    speakers: SpeakerCount = None,
    min_speakers: LeastSpeakers = None,
    max_speakers: MostSpeakers = None,
    form: Annotated[FormatName, typer.Option("--format", help="What to print.")] = FormatName.json,
) -> None:
    """Transcribe recordings here and now; a bad file fails alone and the exit code is 1 at the end."""
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
    counts = (speakers, min_speakers, max_speakers)
    diarization = diarization_of(*counts) if diarize or form is FormatName.rttm or any(counts) else None
    results = transcribe_files(
        files, model, options, chunk=chunk, ask=ask, carries=carries, diarization=diarization
    )
    typer.echo(render_results(results, form.value, lattice and lattice.value))
    if any(result.error for result in results):
        raise typer.Exit(1)


def _reach(form: FormatName, lattice: LatticeName | None, prune: float | None) -> float | None:
    """What lattices are pruned to, None where none is asked for. Raises InvalidRequest."""
    alone = form in (FormatName.lattice, FormatName.kaldi)
    if lattice is not None and form is not FormatName.json:
        raise InvalidRequest("--lattice goes into the JSON; --format lattice or kaldi prints lattices alone")
    if lattice is None and not alone:
        if prune is not None:
            raise InvalidRequest("--prune says how far a lattice reaches: ask for one by --lattice")
        return None
    return PRUNE if prune is None else prune


def _phrases(path: Path | None) -> tuple[str, ...]:
    """The lines of a file. Raises InvalidRequest where it is none."""
    if path is None:
        return ()
    try:
        return tuple(line for line in path.read_text(encoding="utf-8").splitlines() if line.strip())
    except UnicodeDecodeError as error:
        raise InvalidRequest(f"{path}: not a text in UTF-8") from error
    except OSError as error:
        raise InvalidRequest(f"{path}: the phrases cannot be read: {error.strerror}") from error
