"""`spool speakers`: find, list and name who speaks in a job's recording. Clients of the HTTP API."""

from typing import Annotated

from cyclopts import Parameter

from api.cli.completion import JobId
from api.cli.connection import Server, Url, connect, err, out, print_json
from api.cli.options import Speakers
from api.cli.progress import follow
from api.cli.tables import job_table, speaker_table
from spool.commandline.app import new_app
from spool.errors import InvalidRequest
from spool.schemas.jobs import JobOut

app = new_app("Find, list and name the speakers of transcripts.", "speakers")


@app.command(name="find")
def find_speakers(
    job_id: JobId,
    /,
    *,
    known: Speakers = Speakers(),
    wait: Annotated[bool, Parameter(help="Wait until the job has ended.")] = False,
    server: Server = Server(),
) -> None:
    """Find the speakers of a finished job, without transcribing it again."""
    with server.connect() as spool:
        jobs: list[JobOut] = [spool.diarize(job_id, **known.to_diarization())]
        if wait:
            jobs = list(follow(spool, jobs, err))
    server.show(jobs[0], job_table(jobs), crop=False)


@app.command(name="list")
def list_speakers(job_id: JobId, /, *, server: Server = Server()) -> None:
    """List the speakers of a job's transcript, and the voices that they resemble."""
    with server.connect() as spool:
        job, heard = spool.job(job_id), spool.speakers(job_id).items
    if server.as_json:
        print_json(heard)
    elif job.speakers is None:
        out.print("speakers were not requested; see `spool speakers find`", style="dim")
    else:
        out.print(speaker_table(heard))


@app.command(name="name")
def name_speakers(
    job_id: JobId,
    /,
    *names: Annotated[
        str, Parameter(name="LABEL=NAME", help="As speaker_0=Ada; an empty name removes it.", required=True)
    ],
    remember: Annotated[
        bool,
        Parameter(help="Recognise these voices in the project's other recordings."),
    ] = False,
    server: Server = Server(),
) -> None:
    """Name the speakers of a job's transcript. Every format of it then has the names."""
    if any("=" not in pair for pair in names):
        raise InvalidRequest("A name is given as LABEL=NAME, such as speaker_0=Ada.")
    pairs = dict(pair.split("=", 1) for pair in names)
    with server.connect() as spool:
        plain = {label: text or None for label, text in pairs.items()}
        named = spool.name_speakers(job_id, plain, remember=remember)
    server.show(named, speaker_table(named.items))


@app.command(name="voices")
def list_voices(*, server: Server = Server()) -> None:
    """List the voices that are recognised in new recordings."""
    with server.connect() as spool:
        known = spool.voices()
    server.show_rows(
        known,
        "no voices; `spool speakers name JOB LABEL=NAME --remember` adds one",
        ("voice", "project", "name", "recordings"),
        lambda voice: (voice.id, voice.project, voice.name, voice.recordings),
    )


@app.command(name="forget")
def forget_voice(
    voice: Annotated[str, Parameter(name="VOICE", help="The voice's id.")], /, *, url: Url = None
) -> None:
    """Delete a voice and all its voice prints. Speakers keep the name."""
    with connect(url) as spool:
        spool.forget_voice(voice)
    out.print(f"{voice} forgotten")
