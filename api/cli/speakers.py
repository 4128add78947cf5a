"""`spool speakers`: who speaks in a job's transcript, asked for afterwards, and what they are called."""

from typing import Annotated

import typer
from rich.table import Table
from rich.text import Text

from api.cli.connection import Json, Url, connected, err, out, print_json
from api.cli.jobs import JobId
from api.cli.options import LeastSpeakers, MostSpeakers, SpeakerCount, WithinChannels, diarization_of
from api.cli.progress import follow
from api.cli.tables import clock, job_table
from spool.errors import InvalidRequest
from spool.schemas.jobs import JobOut, SpeakerOut

app = typer.Typer(no_args_is_help=True, help="Find, list and name the speakers of transcripts.")


@app.command("find")
def find(
    job_id: JobId,
    speakers: SpeakerCount = None,
    min_speakers: LeastSpeakers = None,
    max_speakers: MostSpeakers = None,
    within_channels: WithinChannels = False,
    wait: Annotated[bool, typer.Option("--wait", help="Wait until the job has ended.")] = False,
    url: Url = None,
    as_json: Json = False,
) -> None:
    """Find out who speaks in a job that is done, without transcribing it again."""
    asked = diarization_of(speakers, min_speakers, max_speakers, within=within_channels)
    with connected(url) as (spool, _):
        jobs: list[JobOut] = [spool.diarize(job_id, **asked)]
        if wait:
            jobs = list(follow(spool, jobs, err))
    if as_json:
        print_json(jobs[0])
    else:
        out.print(job_table(jobs))


@app.command("list")
def listed(job_id: JobId, url: Url = None, as_json: Json = False) -> None:
    """List the speakers of a job's transcript."""
    with connected(url) as (spool, _):
        job = spool.job(job_id)
    if as_json:
        print_json(job.speakers or [])
    elif job.speakers is None:
        out.print("no speakers were asked for; see `spool speakers find`", style="dim")
    else:
        out.print(_table(job.speakers))


@app.command("name")
def name(
    job_id: JobId,
    names: Annotated[
        list[str], typer.Argument(metavar="LABEL=NAME…", help="As speaker_0=Ada; an empty name removes it.")
    ],
    url: Url = None,
    as_json: Json = False,
) -> None:
    """Name the speakers of a job's transcript. Every format of it then has the names."""
    if any("=" not in pair for pair in names):
        raise InvalidRequest("A name is given as LABEL=NAME, such as speaker_0=Ada.")
    pairs = dict(pair.split("=", 1) for pair in names)
    with connected(url) as (spool, _):
        speakers = spool.name_speakers(job_id, {label: text or None for label, text in pairs.items()})
    if as_json:
        print_json(speakers)
    else:
        out.print(_table(speakers.items))


def _table(speakers: list[SpeakerOut]) -> Table:
    table = Table(box=None, pad_edge=False, header_style="dim")
    for title in ("speaker", "name"):
        table.add_column(title, no_wrap=True)
    for title in ("speaks", "words"):
        table.add_column(title, justify="right", no_wrap=True)
    for each in speakers:
        table.add_row(each.label, Text(each.name or "—"), clock(each.talk_seconds), str(each.words))
    return table
