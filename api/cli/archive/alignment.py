"""The subcommand of existing transcripts: `spool align`. A client of the HTTP API."""

import base64
from pathlib import Path
from typing import Annotated, Any, cast

from cyclopts import Parameter
from rich.text import Text

from api.cli.completion import complete_job, complete_model
from api.cli.connection import Server, out
from api.cli.submit import conclude, submit_recordings
from spool.client.options import Options
from spool.domain.archive.typescripts import MAX_TYPESCRIPT_BYTES, read_typescript
from spool.errors import InvalidRequest
from spool.ids import is_id


def align(
    recording: Annotated[
        str,
        Parameter(
            name="RECORDING|JOB",
            completer=complete_job,
            help="A file, an https:// or s3:// address, or a job's id, whose recording is used.",
        ),
    ],
    transcript: Annotated[
        Path, Parameter(help="Its words: a text, SRT, WebVTT or Word (.docx) file of up to 10 MiB.")
    ],
    /,
    *,
    model: Annotated[
        str | None,
        Parameter(
            completer=complete_model,
            help="A model with a CTC head. Default: the job's or the default one if it has it, else another.",
        ),
    ] = None,
    project: Annotated[
        str | None, Parameter(help="Project that is charged. Default: the key's project, else `default`.")
    ] = None,
    pool: Annotated[str | None, Parameter(help="Pool of workers. Default: any with the model.")] = None,
    wait: Annotated[bool, Parameter(help="Wait until the job has ended.")] = False,
    server: Server = Server(),
) -> None:
    """Align an existing transcript with its recording.

    Each of its words gets the time at which it is spoken. The result is a transcript like any other; `spool
    status` says whether the text seems to belong to the recording.
    """
    data = base64.b64encode(_read(transcript)).decode()
    options: dict[str, Any] = {"align": {"data": data, "name": transcript.name}}
    if model is not None:
        options["model"] = model
    with server.connect() as spool:
        if Path(recording).is_dir():
            raise InvalidRequest(f"{recording} is a folder; name the recording of {transcript.name}.")
        if not is_id(recording, "job"):
            request = {"options": options, "project": project, "pool": pool}
            submit_recordings(server, spool, [recording], request, wait=wait)
            return
        job = spool.rerun(recording, cast("Options", options), pool=pool)
        if not server.as_json:
            out.print(Text.assemble(job.id, "  ", (f"version of {job.rerun_of}", "dim"), f"  {job.name}"))
        conclude(server, spool, [job], wait=wait)


def _read(transcript: Path) -> bytes:
    """The file, checked to be readable as a transcript. Raises InvalidRequest."""
    try:
        with transcript.open("rb") as file:
            data = file.read(MAX_TYPESCRIPT_BYTES + 1)
    except OSError as error:
        raise InvalidRequest(f"{transcript}: the transcript cannot be read: {error.strerror}") from error
    read_typescript(data, transcript.name)
    return data
