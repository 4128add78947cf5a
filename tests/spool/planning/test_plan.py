"""Plans: their arithmetic, what they rest on, and what they refuse."""

import json
from pathlib import Path

import pytest

from spool.domain import Measured
from spool.errors import InvalidRequest
from spool.planning import (
    Batch,
    Chip,
    FittedPace,
    Known,
    Lengths,
    Machine,
    Ownership,
    RooflinePace,
    Run,
    Surroundings,
    Workload,
    build_fleet,
    by_chip,
    cap,
    chip_named,
    fit,
    make_plan,
    parse_lengths,
    read_calibration,
    read_lengths,
    read_shape,
    summarize,
    what_if,
)

LARGE = read_shape("0.6b")
HALF_HOUR = parse_lengths("30m")


def _chip(name: str) -> Chip:
    chip = chip_named(name)
    assert chip is not None
    return chip


M4 = _chip("M4")


def workload(hours: float = 1000.0) -> Workload:
    return Workload(hours, HALF_HOUR, LARGE)


def test_a_fit_finds_the_costs_that_made_the_times() -> None:
    true = FittedPace((2e-11, 6e-11, 4e-3, 9e-3, 1e-3, 4e-3, 2e-3, 3e-4), "made up")
    batches = [Batch(s, n) for s in (3, 8, 20, 30) for n in (1, 4, 12)]
    batches += [Batch(s, n, "beam", k) for s in (5, 25) for n in (1, 6) for k in (1, 4, 16)]
    found = fit(LARGE, [Run(batch, true.time_batch(LARGE, batch).seconds) for batch in batches])
    for batch in (Batch(12, 7), Batch(28, 3, "beam", 9), Batch(6, 16, "beam", 2)):
        assert found.time_batch(LARGE, batch).seconds == pytest.approx(
            true.time_batch(LARGE, batch).seconds, rel=0.005
        )


def test_no_cost_is_negative_however_odd_the_times() -> None:
    runs = [Run(Batch(5, 1), 1.0), Run(Batch(30, 1), 0.5), Run(Batch(5, 8, "beam", 8), 0.1)]
    assert min(fit(LARGE, runs).costs) >= 0
    with pytest.raises(InvalidRequest, match="some time"):
        fit(LARGE, [Run(Batch(5, 1), 0.0)])


def test_the_table_of_costs_is_the_published_one() -> None:
    """Dollars for 1000 h of audio at half of the roofline; the published caps leave bandwidth out, and what a
    job loses beside its engine."""
    published = {"M1": 0.54, "M1 Max": 0.39, "M4": 0.29, "M4 Pro": 0.42, "M4 Max": 0.27, "M3 Ultra": 0.39}
    rows = {row.chip.name: row for row in by_chip(workload(), 0.5, Ownership())}
    for name, dollars in published.items():
        cost = rows[name].cost
        assert cost is not None
        assert cost * LARGE.job_share / 1000 == pytest.approx(dollars, rel=0.06), name
    assert rows["M3"].cost is None  # no price was found for it


def test_a_plan_is_hours_over_speed_and_machines_times_hours() -> None:
    pace = RooflinePace(M4, 0.5)
    plan = make_plan(workload(), [Machine("M4", 4, pace, 0.05, 60.0)])
    one = cap(LARGE, M4, workload().batches()[0][0]) / 2
    assert plan.rtfx == pytest.approx(4 * one)
    assert plan.hours == pytest.approx(1000 / (4 * one))
    assert plan.cost == pytest.approx(4 * 0.05 * plan.hours)
    assert plan.kilowatt_hours == pytest.approx(4 * 0.06 * plan.hours)
    assert plan.cost is not None
    assert plan.cost_per_million_hours == pytest.approx(1000 * plan.cost)
    assert plan.binds == "compute"
    assert plan.margin > 1


def test_a_slow_way_to_the_recordings_binds_and_machines_wait_at_their_price() -> None:
    fleet = [Machine("M4", 100, RooflinePace(M4, 0.5), 0.05)]
    plan = make_plan(workload(), fleet, Surroundings(network_mbit=100))
    assert plan.binds == "network"
    assert plan.rtfx == pytest.approx(100_000 / 128)
    assert plan.cost == pytest.approx(100 * 0.05 * 1000 / plan.rtfx)
    assert make_plan(workload(), fleet, Surroundings(store_mbit=0.1)).binds == "object store"


def test_money_that_is_not_known_is_not_made_up() -> None:
    assert make_plan(workload(), build_fleet("1xM3", LARGE, Ownership(), Known())).cost is None


def test_what_if_grows_with_the_chunk_and_the_beam() -> None:
    rows = {row.what: row for row in what_if(workload(), [Machine("M4", 1, RooflinePace(M4, 0.5))])}
    assert rows["chunks of 25 s"].change == pytest.approx(1)
    assert rows["greedy"].change == pytest.approx(1)
    assert rows["chunks of 120 s"].change < rows["chunks of 60 s"].change < 1
    assert rows["beam 16"].change < rows["beam 4"].change < 1


def test_lengths_are_shares_of_the_audio() -> None:
    lengths = parse_lengths("20s:25%, 1h:75%")
    assert lengths.shares == ((20.0, 0.25), (3600.0, 0.75))
    assert lengths.chunks() == ((20.0, 0.25), (25.0, 0.75))
    assert parse_lengths("29").chunks() == ((29.0, 1.0),)
    for bad in ("", "5m,6m", "0s", "soon", "5m:lots", "5m:-1,6m:2"):
        with pytest.raises(InvalidRequest):
            parse_lengths(bad)


def test_measured_recordings_keep_their_lengths_and_bits(tmp_path: Path) -> None:
    lengths = summarize([(100.0, 1_600_000), (100.0, 1_600_000), (3600.0, 57_600_000)])
    assert lengths.kbit == pytest.approx(128)
    assert lengths.mean == pytest.approx(3800 / 3)
    assert lengths.seconds == 3800
    file = tmp_path / "lengths.json"
    file.write_text(json.dumps({"recordings": [{"seconds": 60, "bytes": 100}]}))
    assert isinstance(read_lengths(file), Lengths)
    file.write_text("[]")
    with pytest.raises(InvalidRequest, match="spool-worker measure"):
        read_lengths(file)


def test_the_ledger_goes_before_what_is_assumed() -> None:
    ledger = [Measured("Apple M4", LARGE.name, 36_000, 200), Measured("Apple M4", "other", 72_000, 1)]
    (machine,) = build_fleet("2xM4", LARGE, Ownership(), Known(ledger=ledger))
    speed = make_plan(workload(), [machine]).machines[0].rtfx
    assert speed == pytest.approx(180, rel=0.02)
    assert "RTFx 180" in machine.pace.basis
    short = [Measured("Apple M4", LARGE.name, 10, 0.1)]
    (assumed,) = build_fleet("2xM4", LARGE, Ownership(), Known(ledger=short))
    assert "assumed" in assumed.pace.basis
    # An engine's speed is not a job's; what the ledger measured was jobs
    engine = Machine("M4", 1, RooflinePace(M4, 0.5))
    told = [make_plan(workload(), [each]).machines[0].rtfx for each in (assumed, engine)]
    assert told[0] == pytest.approx(told[1] * LARGE.job_share)


def test_this_machine_has_to_have_been_measured(tmp_path: Path) -> None:
    with pytest.raises(InvalidRequest, match="--calibrate"):
        build_fleet("this machine", LARGE, Ownership(), Known())
    short = [Measured("Some CPU", LARGE.name, 20, 10)]
    with pytest.raises(InvalidRequest, match="less than 30 s of audio"):
        build_fleet("this machine", LARGE, Ownership(), Known(ledger=short))
    little = [Measured("Some CPU", LARGE.name, 45, 15)]
    (machine,) = build_fleet("this machine", LARGE, Ownership(), Known(ledger=little))
    assert make_plan(workload(), [machine]).rtfx == pytest.approx(3, rel=0.05)
    assert machine.pace.basis == "RTFx 3 over only 45 s of audio in the ledger (Some CPU)"
    ledger = [Measured("Some CPU", LARGE.name, 7200, 3600)]
    (machine,) = build_fleet("this machine", LARGE, Ownership(), Known(ledger=ledger, price_per_hour=0.1))
    assert make_plan(workload(), [machine]).rtfx == pytest.approx(2, rel=0.05)
    file = tmp_path / "this.json"
    run = {"seconds": 20, "utterances": 2, "decoder": "greedy", "beam": 4}
    times = {"engine_seconds": 4.0, "processor_seconds": 8.0}
    file.write_text(
        json.dumps({"chip": "Some CPU", "model": LARGE.name, "device": "cpu", "runs": [{**run, **times}]})
    )
    known = Known(calibration=read_calibration(file), ledger=ledger)
    (machine,) = build_fleet("this machine", LARGE, Ownership(), known)
    assert machine.pace.time_batch(LARGE, Batch(20, 2)).seconds == pytest.approx(4.0)
    file.write_text("{}")
    with pytest.raises(InvalidRequest, match="--calibrate"):
        read_calibration(file)
