"""`spool models`: fetches, lists and checks the models of this machine, and sets the fleet's default.

Only `default` talks to the API; the others work on the local model store (`spool.catalogue`).
"""

import json
from typing import Annotated, Any, Literal

from cyclopts import Parameter
from rich.progress import BarColumn, DownloadColumn, TextColumn, TransferSpeedColumn
from rich.progress import Progress as Bar
from rich.text import Text

from api.cli.completion import complete_model
from api.cli.connection import Exit, Json, Url, connect, err, out
from api.cli.tables import Cell, right, table_of
from spool import clock
from spool.catalogue import Installed, ModelStore, Progress, open_store
from spool.commandline.app import new_app
from spool.errors import ModelError
from spool.settings import load_settings

app = new_app("Fetch, list and check models; set the fleet's default.", "models")

Names = Annotated[str, Parameter(name="NAME", required=True, help="Names as `spool models list` has them.")]
_STYLES = {"installed": "green", "bundled": "green", "damaged": "red", "not fetched": "dim"}
_LANGUAGES_SHOWN = 4
_WIDE = 140
"""The width from which a terminal has room for a sentence about each model."""


@app.command
def get(
    *names: Names,
    bits: Annotated[
        Literal[8, 4] | None,
        Parameter(help="Quantise the weights: fetches NAME and makes NAME-8bit or NAME-4bit of it."),
    ] = None,
    force: Annotated[bool, Parameter(help="Fetch it again even if it is here.")] = False,
) -> None:
    """Fetch models into this machine's store and print their paths."""
    store = _store()
    for name in names if bits is None else [f"{name}-{bits}bit" for name in names]:
        started = clock.monotonic()
        before = {row.entry.name for row in store.entries() if row.state == "installed"}
        with _bar() as bar:
            task = bar.add_task(name, total=store.catalogue.find(name).known_bytes)

            def show(progress: Progress, bar: Bar = bar, task: Any = task) -> None:  # noqa: ANN401 - rich's id
                bar.update(
                    task,
                    completed=progress.done,
                    total=progress.total,
                    description=f"{progress.name}: {progress.step}",
                )

            path = store.get(name, show, force=force)
        if force or name not in before:
            err.print(
                Text(f"{name}: every byte checked, after {clock.monotonic() - started:.1f} s", style="dim")
            )
        print(str(path))


@app.command(name="list")
def list_models(*, as_json: Json = False) -> None:
    """List the catalogue's models and which of them are on this machine."""
    store = _store()
    rows = store.entries()
    if as_json:
        print(json.dumps([_document(row) for row in rows], indent=2))
        return
    titles = ("model", "state", "size", "bits", "languages", "licence", "good for")
    shown = len(titles) if out.width >= _WIDE else len(titles) - 1
    out.print(table_of(titles[:shown], (_cells(row)[:shown] for row in rows)))
    err.print(Text(f"{store.folder}: {_megabytes(store.used_bytes())}", style="dim"), soft_wrap=True)


@app.command
def verify(
    *names: Annotated[str, Parameter(name="NAME", help="Default: every model on this machine.")],
) -> None:
    """Read every byte of models again and compare it with the catalogue; exit code 1 if anything differs."""
    store = _store()
    chosen = list(names) or [row.entry.name for row in store.entries() if row.state != "not fetched"]
    damaged = False
    for name in chosen:
        try:
            verification = store.verify(name)
        except ModelError as error:
            if names:
                raise
            problems: tuple[str, ...] = (error.message,)
        else:
            problems = verification.problems
            if not problems:
                print(f"{name}: {verification.files} files, {_megabytes(verification.bytes)}, all intact")
        for problem in problems:
            err.print(Text(f"{name}: {problem}", style="red"), soft_wrap=True)
        damaged = damaged or bool(problems)
    if damaged:
        err.print(Text("`spool models get --force NAME` fetches a model again."), soft_wrap=True)
        raise SystemExit(Exit.FAILED)


@app.command
def default(
    name: Annotated[
        str | None,
        Parameter(name="NAME", completer=complete_model, help="A model that a worker has."),
    ] = None,
    /,
    *,
    url: Url = None,
) -> None:
    """Show or set the model of jobs that name none, for the whole fleet."""
    with connect(url) as spool:
        if name is not None:
            print(spool.set_default_model(name).name)
            return
        for model in spool.models():
            if model.default:
                print(model.name)
                if not model.workers:
                    err.print(Text(f"No worker has {model.name} now.", style="yellow"))


def _store() -> ModelStore:
    settings = load_settings()
    return open_store(settings)


def _bar() -> Bar:
    return Bar(
        TextColumn("{task.description}"), BarColumn(), DownloadColumn(), TransferSpeedColumn(), console=err
    )


def _megabytes(size: int | None) -> str:
    return "—" if size is None else f"{size / 1e6:,.1f} MB"


def _cells(row: Installed) -> list[Cell]:
    entry = row.entry
    languages = ", ".join(entry.languages)
    return [
        entry.name,
        Text(row.state, style=_STYLES[row.state]),
        right(_megabytes(row.bytes)),
        right("" if entry.quantised is None else str(entry.quantised.bits)),
        languages if len(entry.languages) <= _LANGUAGES_SHOWN else str(len(entry.languages)),
        entry.licence,
        entry.good_for,
    ]


def _document(row: Installed) -> dict[str, Any]:
    return {
        **row.entry.model_dump(mode="json", exclude={"sources"}),
        "state": row.state,
        "bytes": row.bytes,
        "bits": row.entry.quantised.bits if row.entry.quantised else None,
        "sources": [source.describe() for source in row.entry.sources],
        "source": row.source or None,
        "commit": row.commit or None,
        "used_at": row.used_at.isoformat() if row.used_at else None,
    }
