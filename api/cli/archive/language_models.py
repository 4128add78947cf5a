"""`spool lm`: named, versioned language models of a project's texts. A client of the HTTP API; a worker's
command builds them, since only workers read models."""

import json
import subprocess
import sys
import tempfile
from contextlib import suppress
from pathlib import Path
from typing import Annotated, TextIO

from cyclopts import Parameter

from api.cli.connection import Server, Url, connect, err, out
from spool.client import Deleted, NotFound, Spool
from spool.commandline.app import new_app
from spool.errors import InvalidRequest, SpoolError
from spool.schemas.glossaries import LanguageModelOut

app = new_app("Build language models from texts, for jobs to use.", "lm")

MOST_WORDS = 1_000_000
"""Words of transcripts: what a worker's build has room for, at up to three tokens per word."""

Name = Annotated[str, Parameter(name="NAME", help="The language model's name.")]
Project = Annotated[str | None, Parameter(help="The project that uses it. Default: default.")]


@app.command
def build(
    *texts: Annotated[Path, Parameter(name="TEXT", help="UTF-8, one sentence per line.")],
    model: Annotated[
        str,
        Parameter(help="Model whose tokens it uses: folder, .nemo file, catalogue name or hub id."),
    ],
    name: Annotated[str, Parameter(help="The language model's name.")],
    from_transcripts: Annotated[
        bool,
        Parameter(
            help="Also use the project's transcripts: the newest of each recording, with its corrections.",
        ),
    ] = False,
    corrected: Annotated[bool, Parameter(help="Only transcripts that have corrections.")] = False,
    tag: Annotated[
        str | None, Parameter(metavar="KEY[=VALUE]", help="Only transcripts of jobs with this tag.")
    ] = None,
    order: Annotated[int, Parameter(help="Longest n-gram in tokens, 1 to 16.")] = 4,
    project: Project = None,
    server: Server = Server(),
) -> None:
    """Build a language model from texts on this machine, and add it as a version."""
    if not texts and not from_transcripts:
        raise InvalidRequest("Name texts, or use the project's transcripts with --from-transcripts.")
    if (corrected or tag) and not from_transcripts:
        raise InvalidRequest("--corrected and --tag choose among transcripts: add --from-transcripts.")
    with tempfile.TemporaryDirectory() as folder:
        file, read = Path(folder) / "built.arpa", [str(text) for text in texts]
        if from_transcripts:
            own = Path(folder) / "transcripts.txt"
            with server.connect() as spool, own.open("w", encoding="utf-8") as lines:
                project = _write_transcripts(spool, lines, project, tag, corrected=corrected)
            read.append(str(own))
        arguments = ["--model", model, "--order", str(order), "--output", str(file)]
        command = [sys.executable, "-m", "worker.cli.main", "lm", *arguments, "--", *read]
        ended = subprocess.run(command, capture_output=True, text=True, check=False)
        if ended.returncode:
            reason = ended.stderr.strip().removeprefix("spool-worker: ") or f"exit code {ended.returncode}"
            raise (InvalidRequest if ended.returncode == 2 else SpoolError)(reason)
        built = json.loads(ended.stdout.splitlines()[-1])
        with server.connect() as spool:
            added = spool.put_language_model(name, file, model=model, project=project)
    if built["unspelled"]:
        err.print(f"{built['unspelled']} words that the model's tokens cannot spell were left out")
    _print_version(server, added)


@app.command
def put(
    name: Name,
    file: Annotated[Path, Parameter(name="FILE", help="An ARPA file over the model's tokens.")],
    /,
    *,
    model: Annotated[str | None, Parameter(help="The model whose tokens it uses.")] = None,
    project: Project = None,
    server: Server = Server(),
) -> None:
    """Add a version of a language model from a file."""
    if not file.is_file():
        raise InvalidRequest(f"{file} is not a file.")
    with server.connect() as spool:
        added = spool.put_language_model(name, file, model=model, project=project)
    _print_version(server, added)


@app.command(name="list")
def list_language_models(*, project: Project = None, server: Server = Server()) -> None:
    """List language models, each with its latest version."""
    with server.connect() as spool:
        rows = spool.language_models(project=project)
    server.show_rows(
        rows,
        "no language models",
        ("language model", "project", "order", "n-grams", "model", "by"),
        lambda row: (
            f"{row.name}@{row.version}",
            row.project,
            row.ngram_order,
            row.ngrams,
            row.model,
            row.created_by,
        ),
    )


@app.command
def delete(name: Name, /, *, project: Project = None, url: Url = None) -> None:
    """Delete all versions of a language model. Refused while a job that uses it has not ended."""
    with connect(url) as spool:
        spool.remove_language_model(name, project=project)
    out.print(f"{name} deleted")


def _write_transcripts(
    spool: Spool, lines: TextIO, project: str | None, tag: str | None, *, corrected: bool
) -> str:
    """Write the segments, one per line: the newest transcript of each recording, the newest recordings first,
    up to `MOST_WORDS` words. Returns their project. Raises InvalidRequest if there are none, or they belong
    to several projects."""
    seen: set[str] = set()
    read = words = 0
    for job in spool.jobs(state="done", project=project, tag=tag):
        project = project or job.project
        if job.project != project:
            raise InvalidRequest(
                f"The transcripts belong to {project} and {job.project}: choose with --project."
            )
        recording = job.rerun_of or job.reused_from or job.id
        if recording in seen or (job.deleted is not None and job.deleted.transcript is not None):
            continue
        seen.add(recording)
        if words + (job.words or 0) > MOST_WORDS:
            err.print(f"older transcripts are left out: at most {MOST_WORDS:,} words are read")
            break
        with suppress(Deleted, NotFound):  # deleted in the meantime
            transcript = spool.words(job.id)
            if transcript.corrections or not corrected:
                lines.writelines(f"{' '.join(each.text.split())}\n" for each in transcript.segments)
                read, words = read + 1, words + len(transcript.words)
    if project is None or not words:
        which = "corrected transcripts" if corrected else "transcripts"
        raise InvalidRequest(f"There are no {which} with words{f' in project {project}' if project else ''}.")
    err.print(f"{words:,} words of {read} {'transcript' if read == 1 else 'transcripts'} of {project}")
    return project


def _print_version(server: Server, added: LanguageModelOut) -> None:
    facts = f"{added.ngrams} n-grams up to order {added.ngram_order}"
    server.show(added, f"{added.name}@{added.version}: {facts}")
