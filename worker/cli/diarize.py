"""`spool-worker diarize`: who speaks when in files, without a queue and without a transcript.

The contract of `--format json`, one object a file, in the order given:

    {"file", "duration", "speakers", "segments": [{"speaker", "start", "end"}]}
    {"file", "error": {"code", "message"}}        for a file that failed

Times are seconds; speakers are numbered from 0 as they first speak. `--format rttm` prints NIST's lines for
all files, one after another, and errors on stderr.
"""

from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

from worker.cli.per_file import Row, exit_by, mono_blocks, print_json, rows_of
from worker.cli.speakers import LeastSpeakers, MostSpeakers, SpeakerCount, diarization_of
from worker.machine.blas import preload_blas


class DiarizeFormat(StrEnum):
    """Output format."""

    json = "json"
    rttm = "rttm"


def diarize(
    files: Annotated[list[Path], typer.Argument(metavar="FILE...", help="Recordings to analyse.")],
    speakers: SpeakerCount = None,
    min_speakers: LeastSpeakers = None,
    max_speakers: MostSpeakers = None,
    form: Annotated[DiarizeFormat, typer.Option("--format", help="Output format.")] = DiarizeFormat.json,
) -> None:
    """Print who speaks when. Give the number of speakers if you know it: nothing helps more."""
    asked = diarization_of(speakers, min_speakers, max_speakers)
    preload_blas()
    from worker.audio.resample import SAMPLE_RATE
    from worker.diarization.base import SpeakerBounds, run_here
    from worker.diarization.registry import load_diarization, load_network
    from worker.diarization.timeline import render_rttm

    bounds = SpeakerBounds(asked.least, asked.most)
    model = load_diarization(asked.model)
    run = run_here(load_network(model.path))
    rttm: list[str] = []

    def work(path: Path) -> Row:
        result = model.diarize(lambda: mono_blocks(path), run, bounds)
        rttm.append(render_rttm(result.segments, path.stem))
        return {
            "duration": result.samples / SAMPLE_RATE,
            "speakers": result.speakers,
            "segments": [
                {"speaker": segment.speaker, "start": round(segment.start, 3), "end": round(segment.end, 3)}
                for segment in result.segments
            ],
        }

    rows = rows_of(files, work)
    if form is DiarizeFormat.json:
        print_json(rows)
    else:
        typer.echo("".join(rttm), nl=False)
        for row in rows:
            if "error" in row:
                typer.echo(f"spool-worker: {row['file']}: {row['error']['message']}", err=True)
    exit_by(rows)
