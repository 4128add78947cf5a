"""`spool-worker transcribe`: the engine with no queue.

Knows options, printing and the exit code; `worker.transcribe` does the work.
"""

from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

from worker.blas import preload_blas
from worker.decode.hypothesis import SearchOptions
from worker.file_result import render_results


class DecoderName(StrEnum):
    """How to search."""

    greedy = "greedy"
    beam = "beam"


class HeadName(StrEnum):
    """Which of the model's heads to search; auto takes TDT, else RNNT, else CTC."""

    auto = "auto"
    tdt = "tdt"
    rnnt = "rnnt"
    ctc = "ctc"


class FormatName(StrEnum):
    """What to print."""

    json = "json"
    txt = "txt"
    srt = "srt"
    vtt = "vtt"


def transcribe(
    files: Annotated[list[Path], typer.Argument(metavar="FILE...", help="Recordings to transcribe.")],
    model: Annotated[str, typer.Option(help="A model's folder, a .nemo file or a hub id.")],
    decoder: Annotated[DecoderName, typer.Option(help="How to search.")] = DecoderName.greedy,
    beam: Annotated[int, typer.Option(min=1, help="Hypotheses kept by the beam search.")] = 4,
    nbest: Annotated[int, typer.Option(min=1, help="Hypotheses to report.")] = 1,
    head: Annotated[HeadName, typer.Option(help="Which head to search.")] = HeadName.auto,
    chunk: Annotated[
        bool, typer.Option(help="Cut at silences; --no-chunk decodes all files whole, as one batch.")
    ] = True,
    form: Annotated[FormatName, typer.Option("--format", help="What to print.")] = FormatName.json,
) -> None:
    """Transcribe recordings here and now; a bad file fails alone and the exit code is 1 at the end."""
    # The BLAS must be there before MLX, which comes in with worker.transcribe.
    preload_blas()
    from worker.transcribe import transcribe_files

    options = SearchOptions(decoder=decoder.value, beam=beam, nbest=nbest, head=head.value)
    results = transcribe_files(files, model, options, chunk=chunk)
    typer.echo(render_results(results, form.value))
    if any(result.error for result in results):
        raise typer.Exit(1)
