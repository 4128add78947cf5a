"""`spool plan`: how long a fleet would take for so much audio, at what cost, and what binds. Asks no server.

Reads the ledger of the settings' database where it can, since measured speeds go before assumed ones. Knows
options and printing; the arithmetic is `spool.planning`.
"""

import json
from collections.abc import Sequence
from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

from api.cli_connection import Json, out
from api.plan_tables import document, tables
from spool.errors import SpoolError
from spool.planning.audio import CHUNK_SECONDS, parse_lengths, read_lengths
from spool.planning.fleet import Known, Measured, build_fleet, read_calibration
from spool.planning.pace import ASSUMED_EFFICIENCY
from spool.planning.plan import Ownership, Surroundings, Workload, by_chip, make_plan, what_if
from spool.planning.shape import ModelShape, read_shape
from spool.settings import FRAME_BUDGET, MAX_BATCH, Settings, load_settings
from spool.store import Database
from spool.store.paces import measured_paces


class Search(StrEnum):
    """How the model's output is searched."""

    GREEDY = "greedy"
    BEAM = "beam"


def plan(
    hours: Annotated[float | None, typer.Option(min=0.001, help="Hours of audio.")] = None,
    lengths: Annotated[
        str, typer.Option(help="How long recordings are: 45m, or with shares of the audio: 20s:10%,1h:90%.")
    ] = "45m",
    measured: Annotated[
        Path | None, typer.Option(help="What `spool-worker measure --json` printed, instead of both.")
    ] = None,
    model: Annotated[str, typer.Option(help="A name in the settings, a folder, or 0.6b or 110m.")] = "",
    decoder: Annotated[Search, typer.Option(help="How to search.")] = Search.GREEDY,
    beam: Annotated[int, typer.Option(min=1, max=32, help="Hypotheses kept by the beam.")] = 4,
    fleet: Annotated[
        str, typer.Option(help="Such as '4xM4, 1xM3 Ultra', or 'this machine'.")
    ] = "this machine",
    calibration: Annotated[
        Path | None, typer.Option(help="What `spool-worker bench --calibrate --json` printed.")
    ] = None,
    ledger: Annotated[bool, typer.Option(help="Use speeds from the ledger, where it has some.")] = True,
    efficiency: Annotated[
        float | None,
        typer.Option(min=0.001, max=1, help="The share of its roofline that a chip reaches; else measured."),
    ] = None,
    chunk: Annotated[float, typer.Option(min=1, help="Mean seconds of the pieces.")] = CHUNK_SECONDS,
    network: Annotated[float, typer.Option(min=0.001, help="Mbit/s from the recordings' source.")] = 1000,
    store: Annotated[float, typer.Option(min=0.001, help="Mbit/s to the object store.")] = 1000,
    years: Annotated[float, typer.Option(min=0.1, help="Over which a machine is written off.")] = 3,
    duty: Annotated[float, typer.Option(min=0.01, max=1, help="The share of them that it works.")] = 0.7,
    kwh: Annotated[float, typer.Option(min=0, help="Price of a kilowatt-hour.")] = 0.15,
    watts: Annotated[float | None, typer.Option(min=0, help="What this machine draws at work.")] = None,
    as_json: Json = False,
) -> None:
    """How long a fleet would take, what that costs, and what binds."""
    settings = load_settings()
    shape = _shape(settings, model or settings.default_model)
    audio = read_lengths(measured) if measured else parse_lengths(lengths)
    amount = hours if hours is not None else (audio.seconds or 0) / 3600 or 1_000_000
    work = Workload(
        amount,
        audio,
        shape,
        "beam" if decoder is Search.BEAM else "greedy",
        beam,
        chunk,
        settings.frame_budget or FRAME_BUDGET,
        settings.max_batch or MAX_BATCH,
    )
    own = Ownership(years, duty, kwh)
    known = Known(
        read_calibration(calibration) if calibration else None,
        _ledger(settings) if ledger else (),
        efficiency,
        settings.price_per_hour_micros() / 1e6,
        watts,
    )
    machines = build_fleet(fleet, shape, own, known)
    found = make_plan(work, machines, Surroundings(network, store))
    chips = by_chip(work, efficiency or ASSUMED_EFFICIENCY, own)
    others = what_if(work, machines)
    if as_json:
        typer.echo(
            json.dumps(document(found, chips, others, settings.cloud_prices, settings.currency), indent=2)
        )
    else:
        out.print(tables(found, chips, others, settings.cloud_prices, settings.currency))


def _shape(settings: Settings, name: str) -> ModelShape:
    """The sizes of a model, under the name that jobs and the ledger use. Raises InvalidRequest."""
    from dataclasses import replace

    return replace(read_shape(settings.models.get(name, name)), name=name)


def _ledger(settings: Settings) -> Sequence[Measured]:
    """Nothing where there is no database yet: a plan may well come first."""
    try:
        database = Database(settings.database_url)
        try:
            with database.read() as tx:
                return measured_paces(tx)
        finally:
            database.close()
    except SpoolError:
        return ()
