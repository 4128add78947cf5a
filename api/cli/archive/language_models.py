"""`spool lm`: named, versioned language models of a project's texts. A client of the HTTP API; a worker's
command builds them, since only workers read models."""

import json
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Annotated

import typer
from rich.table import Table

from api.cli.connection import Json, Url, connected, err, out, print_json
from spool.errors import InvalidRequest, SpoolError
from spool.schemas.glossaries import LanguageModelOut

app = typer.Typer(no_args_is_help=True, help="Build language models of texts for jobs to name.")

Name = Annotated[str, typer.Argument(metavar="NAME", help="The language model's name.")]
Project = Annotated[str | None, typer.Option(help="The project that uses it. Default: default.")]


@app.command()
def build(
    texts: Annotated[list[Path], typer.Argument(metavar="TEXT…", help="UTF-8, a sentence a line.")],
    model: Annotated[
        str,
        typer.Option(help="Over whose tokens it is: folder, .nemo file, catalogue name or hub id."),
    ],
    name: Annotated[str, typer.Option(help="The language model's name.")],
    order: Annotated[int, typer.Option(help="Tokens that an n-gram has at most, 1 to 16.")] = 4,
    project: Project = None,
    url: Url = None,
    as_json: Json = False,
) -> None:
    """Build a language model of texts on this machine, and add it as a version."""
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "built.arpa"
        arguments = ["--model", model, "--order", str(order), "--output", str(file)]
        command = [sys.executable, "-m", "worker.cli.main", "lm", *arguments, "--", *map(str, texts)]
        ended = subprocess.run(command, capture_output=True, text=True, check=False)
        if ended.returncode:
            reason = ended.stderr.strip().removeprefix("spool-worker: ") or f"exit code {ended.returncode}"
            raise (InvalidRequest if ended.returncode == 2 else SpoolError)(reason)
        built = json.loads(ended.stdout.splitlines()[-1])
        with connected(url) as (spool, _):
            added = spool.put_language_model(name, file, model=model, project=project)
    if built["unspelled"]:
        err.print(f"{built['unspelled']} words that the model's tokens cannot spell were left out")
    _print_version(added, as_json)


@app.command()
def put(
    name: Name,
    file: Annotated[Path, typer.Argument(metavar="FILE", help="An ARPA file over the model's tokens.")],
    model: Annotated[str | None, typer.Option(help="The model over whose tokens it is.")] = None,
    project: Project = None,
    url: Url = None,
    as_json: Json = False,
) -> None:
    """Add a version of a language model from a file."""
    if not file.is_file():
        raise InvalidRequest(f"{file} is no file.")
    with connected(url) as (spool, _):
        added = spool.put_language_model(name, file, model=model, project=project)
    _print_version(added, as_json)


@app.command("list")
def listed(project: Project = None, url: Url = None, as_json: Json = False) -> None:
    """List language models, each with its latest version."""
    with connected(url) as (spool, _):
        rows = spool.language_models(project=project)
    if as_json:
        print_json(rows)
        return
    if not rows:
        out.print("no language models", style="dim")
        return
    table = Table(box=None, pad_edge=False, header_style="dim")
    for title in ("language model", "project", "order", "n-grams", "model", "by"):
        table.add_column(title, overflow="fold")
    for row in rows:
        reference, facts = f"{row.name}@{row.version}", (str(row.ngram_order), str(row.ngrams))
        table.add_row(reference, row.project, *facts, row.model or "", row.created_by)
    out.print(table)


@app.command()
def delete(name: Name, project: Project = None, url: Url = None) -> None:
    """Delete a language model with every version. Refused while jobs that name it have not ended."""
    with connected(url) as (spool, _):
        spool.remove_language_model(name, project=project)
    out.print(f"{name} deleted")


def _print_version(added: LanguageModelOut, as_json: bool) -> None:
    facts = f"{added.ngrams} n-grams up to order {added.ngram_order}"
    print_json(added) if as_json else out.print(f"{added.name}@{added.version}: {facts}")
