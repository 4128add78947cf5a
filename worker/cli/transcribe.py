"""`spool-worker transcribe`: transcribes files without a queue.

Knows printing and the exit code. The options are in `worker.cli.options`; `worker.local.transcribe` does the
work.
"""

from dataclasses import replace
from pathlib import Path
from typing import Annotated

import typer

from spool.command_options import takes_options
from spool.errors import InvalidRequest
from worker.cli.options import Fusion, Output, Search, Speakers, Speech
from worker.decode.types import DecodeRequest
from worker.local.report import render_results
from worker.machine.blas import preload_blas


@takes_options
def transcribe(
    files: Annotated[list[Path], typer.Argument(metavar="FILE...", help="Recordings to transcribe.")],
    model: Annotated[
        str, typer.Option(help="Folder of a model, a .nemo file, a name in the catalogue or a hub id.")
    ],
    search: Search,
    fusion: Fusion,
    speech: Speech,
    speakers: Speakers,
    output: Output,
    chunk: Annotated[
        bool,
        typer.Option(help="Split at silences. --no-chunk decodes each file whole, all files as one batch."),
    ] = True,
    rescore_model: Annotated[
        str | None,
        typer.Option(
            help="Model whose attention decoder orders the beam's hypotheses (Whisper, Canary, U2++), or a "
            "language model: an LSTM's folder, or an ARPA file over the model's tokens."
        ),
    ] = None,
    rescore_weight: Annotated[
        float, typer.Option(help="Weight of that model's log-probability added to the hypothesis's score.")
    ] = 0.5,
    speech_detector: Annotated[
        bool,
        typer.Option(
            "--speech-detector/--no-speech-detector",
            help="Do not decode stretches without speech, and drop segments invented there (only in chunks).",
        ),
    ] = True,
) -> None:
    """Transcribe files without a queue. A file that fails stops no other; the exit code is then 1."""
    # The BLAS must be there before MLX, which comes in with worker.local.transcribe.
    preload_blas()
    from worker.local.transcribe import transcribe_files

    ask = DecodeRequest(
        phrases=fusion.phrases(),
        boost=fusion.boost_weight,
        lm=None if fusion.lm is None else str(fusion.lm),
        alpha=fusion.alpha,
        alternatives=output.alternatives,
        lattice=output.lattice_beam(),
        speech=speech.to_options(),
    )
    options = search.to_options()
    if fusion.context == "job" and not (ask.lm or ask.phrases):
        raise InvalidRequest("--context: needs --lm or --boost, and neither is given")
    if rescore_model is not None and options.decoder == "greedy":
        raise InvalidRequest("--rescore-model: the greedy decoder keeps one hypothesis; use --decoder beam")
    if ask.lm or ask.phrases:
        options = replace(options, lm_blanks=fusion.lm_blanks, pruning=fusion.pruning)
    results = transcribe_files(
        files,
        model,
        options,
        chunk=chunk,
        ask=ask,
        carries=fusion.context == "job",
        detector=speech_detector,
        diarization=speakers.to_diarization(output.form),
        rescore=None if rescore_model is None else (rescore_model, rescore_weight),
        diarizer=speakers.diarizer,
    )
    typer.echo(render_results(results, output.form, output.lattice))
    skipped = dict.fromkeys(text for each in results if each.transcript for text in each.transcript.warnings)
    for warning in skipped:
        typer.echo(warning, err=True)
    for result in results:
        if result.transcript is not None and result.transcript.audio.complete is False:
            typer.echo(f"{result.file}: {result.transcript.audio.warnings[-1]}", err=True)
    if any(result.error for result in results):
        raise typer.Exit(1)
