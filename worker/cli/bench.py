"""`spool-worker bench`: prints what `worker.diagnostics.bench` measured. Knows options and printing."""

import json
from dataclasses import asdict
from pathlib import Path
from typing import Annotated

from cyclopts import Parameter
from cyclopts.validators import Number

from spool.domain.search.searches import SearchName


def bench(
    *files: Annotated[Path, Parameter(name="FILE", help="Recordings. Default: synthetic speech.")],
    model: Annotated[
        str, Parameter(help="Name of a model in the settings, or a path. Default: the default model.")
    ] = "",
    decoder: Annotated[SearchName, Parameter(help="Search method.")] = "greedy",
    beam: Annotated[int, Parameter(validator=Number(gte=1), help="Beam width.")] = 4,
    seconds: Annotated[
        float, Parameter(validator=Number(gte=1), help="Audio to transcribe, in seconds.")
    ] = 600,
    calibrate: Annotated[
        bool,
        Parameter(
            help="Time batches of several lengths, sizes and beams instead, as input for `spool plan`."
        ),
    ] = False,
    rounds: Annotated[
        int, Parameter(validator=Number(gte=1), help="Number of times each batch is timed by --calibrate.")
    ] = 3,
    as_json: Annotated[bool, Parameter(name="--json", help="Print one JSON object.")] = False,
) -> None:
    """Measure how fast this machine transcribes: audio seconds per engine second (RTFx)."""
    if calibrate:
        _calibrate(list(files), model, rounds, as_json)
        return
    from spool.settings import load_settings
    from worker.diagnostics.bench import run_bench
    from worker.models.requests import SearchOptions

    settings = load_settings()
    name = model or settings.default_model
    options = SearchOptions(decoder=decoder, beam=beam)
    result = run_bench(settings, settings.models.get(name, name), options, list(files), seconds)
    if as_json:
        print(json.dumps({**asdict(result), "rtfx": result.rtfx}, indent=2))
        return
    print(
        f"{result.model} on {result.device or 'its device'}, {result.decoder}: RTFx {result.rtfx:.1f} "
        f"({result.audio_seconds:.0f} s of audio in {result.engine_seconds:.2f} s of engine, "
        f"{result.wall_seconds:.2f} s of wall clock; "
        f"{result.utterances} utterances, {result.batch:.1f} per batch, "
        f"{result.words} words; model loaded in {result.load_seconds:.2f} s)"
    )


def _calibrate(files: list[Path], model: str, rounds: int, as_json: bool) -> None:
    from worker.machine.blas import preload_blas

    preload_blas()
    from spool.settings import load_settings
    from worker.diagnostics.bench import speech_of
    from worker.diagnostics.calibration import BATCHES, document, measure
    from worker.engine.recognizer import load_recognizer

    settings = load_settings()
    name = model or settings.default_model
    recognizer = load_recognizer(settings.models.get(name, name))
    runs = measure(recognizer, speech_of(*files), BATCHES, rounds)
    if as_json:
        print(json.dumps(document(name, recognizer.info.device, runs), indent=2))
        return
    for run in runs:
        batch = run.batch
        search = f"beam {batch.beam}" if batch.decoder == "beam" else "greedy"
        print(
            f"{batch.utterances:.0f} x {batch.seconds:.0f} s, {search}: RTFx "
            f"{batch.audio_seconds / run.seconds:.1f} ({run.seconds:.3f} s)"
        )
