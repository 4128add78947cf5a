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

from spool.errors import InvalidRequest
from worker.cli.per_file import Row, exit_by, mono_blocks, print_json, rows_of
from worker.machine.blas import preload_blas

MOST_SPEAKERS = 99


class DiarizeFormat(StrEnum):
    """Output format."""

    json = "json"
    rttm = "rttm"


def diarize(
    files: Annotated[list[Path], typer.Argument(metavar="FILE...", help="Recordings to analyse.")],
    speakers: Annotated[
        int | None, typer.Option(min=1, max=MOST_SPEAKERS, help="The exact number of speakers.")
    ] = None,
    min_speakers: Annotated[
        int | None, typer.Option(min=1, max=MOST_SPEAKERS, help="The smallest number of speakers.")
    ] = None,
    max_speakers: Annotated[
        int | None, typer.Option(min=1, max=MOST_SPEAKERS, help="The largest number of speakers.")
    ] = None,
    form: Annotated[DiarizeFormat, typer.Option("--format", help="Output format.")] = DiarizeFormat.json,
) -> None:
    """Print who speaks when. Give the number of speakers if you know it: nothing helps more."""
    if speakers is not None and (min_speakers, max_speakers) != (None, None):
        raise InvalidRequest("--speakers gives the exact number: leave --min-speakers and --max-speakers out")
    preload_blas()
    from worker.audio.resample import SAMPLE_RATE
    from worker.diarization.clustering import ClusterOptions
    from worker.diarization.diarizer import DiarizeOptions, Diarizer
    from worker.diarization.timeline import render_rttm

    least, most = speakers or min_speakers or 1, speakers or max_speakers or MOST_SPEAKERS
    options = DiarizeOptions(clusters=ClusterOptions(min_speakers=least, max_speakers=most))
    diarizer = Diarizer()
    rttm: list[str] = []

    def work(path: Path) -> Row:
        result = diarizer.diarize(lambda: mono_blocks(path), options)
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
