"""`spool plan` and what it is given, as a person runs them one after another."""

import json
from pathlib import Path

import pytest

from api.cli.main import main
from ops.testbed.invoking import invoke
from ops.testbed.rows import bill, chunk, queued, registered
from spool.planning import Batch
from spool.store import Database, claim_job, measure_throughputs, save_chunk
from worker.cli.main import main as worker_main
from worker.diagnostics import calibration

ROOT = Path(__file__).parents[3]


def planned(tmp_path: Path, *arguments: str, database: str = "") -> dict[str, object]:
    stores = {"SPOOL_DATABASE_URL": database} if database else {}
    ran = invoke(
        main,
        ["plan", "--json", *arguments],
        env={"SPOOL_HOME": str(tmp_path), **stores},
    )
    assert ran.exit_code == 0, ran.output
    answer: dict[str, object] = json.loads(ran.stdout)
    return answer


def test_a_fleet_of_chips_without_any_server(tmp_path: Path) -> None:
    told = planned(tmp_path, "--model", "0.6b", "--hours", "1000", "--fleet", "4xM4,1xM3 Ultra")
    assert told["binds"] == "compute"
    assert told["cost_per_million_hours"] == pytest.approx(1000 * told["cost"])  # type: ignore[operator]
    assert [one["count"] for one in told["machines"]] == [4, 1]  # type: ignore[attr-defined]
    shown = invoke(
        main,
        ["plan", "--model", "110m", "--fleet", "M4", "--details"],
        env={"SPOOL_HOME": str(tmp_path), "COLUMNS": "120"},
    )
    assert "compute; the next is memory bandwidth, at" in shown.output
    assert "960,000" in shown.output
    assert "at least 13%, the best measured peer" in " ".join(shown.output.split())


@pytest.mark.integration
def test_files_are_measured_and_the_answer_comes_first(tmp_path: Path) -> None:
    digits = ROOT / "samples" / "demo-tdt" / "digits"
    env = {"SPOOL_HOME": str(tmp_path), "COLUMNS": "120"}
    fleet = ["--model", str(ROOT / "models" / "demo"), "--fleet", "M4"]
    shown = invoke(main, ["plan", str(digits), *fleet], env=env)
    assert shown.exit_code == 0, shown.output
    facts = dict(line.split(None, 1) for line in shown.output.splitlines() if line[:1] != "-")
    count = len([each for each in digits.iterdir() if each.suffix == ".flac"])
    assert facts["audio"].strip().endswith(f"in {count} recordings")
    assert facts["time"].strip() == "less than 1 s"
    assert facts["cost"].strip() == "less than 0.01 USD"
    assert "1,000,000" not in shown.output
    assert len(shown.output.splitlines()) < 10
    missing = invoke(main, ["plan", str(tmp_path / "gone")], env=env)
    assert "there is no such file or folder" in missing.output
    bucket = invoke(main, ["plan", "s3://archive/reels/"], env=env)
    assert "For addresses, give their --hours" in bucket.output
    empty = invoke(main, ["plan", str(tmp_path)], env=env)
    assert "no recording with any audio" in empty.output


def test_recordings_and_this_machine_are_measured(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What one command prints the next one reads, with the real model and real recordings."""
    monkeypatch.setattr(calibration, "BATCHES", (Batch(2, 2), Batch(1, 3, "beam", 2)))
    lengths = invoke(worker_main, ["measure", "--json", str(ROOT / "samples" / "demo-tdt")])
    assert lengths.exit_code == 0
    found = tmp_path / "lengths.json"
    found.write_text(lengths.stdout)
    machine = invoke(
        worker_main,
        ["bench", "--calibrate", "--rounds", "1", "--json", "--model", str(ROOT / "models" / "demo")],
    )
    assert machine.exit_code == 0, machine.output
    this = tmp_path / "this.json"
    this.write_text(machine.stdout)
    told = planned(tmp_path, "--model", "demo-tdt", "--measured", str(found), "--calibration", str(this))
    seconds = sum(one["seconds"] for one in json.loads(lengths.stdout)["recordings"])
    assert told["audio_hours"] == pytest.approx(seconds / 3600)
    assert "2 batches measured" in told["machines"][0]["basis"]  # type: ignore[index]
    assert 1 < told["rtfx"] < 10_000  # type: ignore[operator]


def test_the_ledger_tells_how_fast_a_machine_is(sqlite_url: str, tmp_path: Path) -> None:
    db = Database(sqlite_url)
    worker, job = registered(db), queued(db)
    with db.begin() as tx:
        claim = claim_job(tx, job.id, worker, 60)
        assert claim is not None
        save_chunk(tx, claim, chunk(0), bill(worker, 10**9, 16_000 * 900))
    with db.read() as tx:
        (found,) = measure_throughputs(tx)
    db.close()
    assert (found.chip, found.model, found.audio_seconds, found.engine_seconds) == (
        "chip",
        "demo-tdt",
        900,
        1,
    )
    assert planned(tmp_path, "--hours", "1", "--model", "demo-tdt", database=sqlite_url)[
        "rtfx"
    ] == pytest.approx(900, rel=0.05)


def test_a_second_model_is_counted(tmp_path: Path) -> None:
    beam = ("--model", "0.6b", "--hours", "10", "--fleet", "1xM4", "--decoder", "beam", "--beam", "4")
    plain, rescored = planned(tmp_path, *beam), planned(tmp_path, *beam, "--rescore-model", "canary-1b-flash")
    assert (plain["rescore_model"], rescored["rescore_model"]) == (None, "canary-1b-flash")
    assert 1.5 * rescored["rtfx"] < plain["rtfx"] < 10 * rescored["rtfx"]  # type: ignore[operator]
    work = {one["what"]: one["gigaflops"] for one in rescored["what_if"]}  # type: ignore[attr-defined]
    before = {one["what"]: one["gigaflops"] for one in plain["what_if"]}  # type: ignore[attr-defined]
    assert work["greedy"] == before["greedy"]
    assert work["beam 4"] > before["beam 4"] + 15, "an encoder of 32 layers, and its decoder"
    for arguments, why in (
        (("--rescore-model", "canary-1b"), "--rescore-model: a second model"),
        (("--decoder", "beam", "--rescore-model", "110m"), "110m has no attention decoder"),
    ):
        ran = invoke(main, ["plan", *beam[:6], *arguments], env={"SPOOL_HOME": str(tmp_path)})
        assert ran.exit_code != 0
        assert why in ran.output


def test_the_own_decoders_of_a_wenet_model_are_counted_where_they_have_a_weight(tmp_path: Path) -> None:
    tree = {
        "encoder_conf": {"output_size": 64, "num_blocks": 2, "linear_units": 256, "input_layer": "conv2d"},
        "decoder_conf": {"num_blocks": 4, "r_num_blocks": 2},
        "output_dim": 4233,
    }
    (tmp_path / "train.yaml").write_text(json.dumps(tree))  # JSON is YAML
    asked = ("--model", str(tmp_path), "--hours", "10", "--fleet", "1xM4")

    def work(*arguments: str) -> tuple[object, float]:
        answer = planned(tmp_path, *asked, *arguments)
        rows = {one["what"]: one["gigaflops"] for one in answer["what_if"]}  # type: ignore[attr-defined]
        return answer["attention_decoders"], rows["beam 4"]

    reads, beam = work("--decoder", "beam")
    assert reads == "none"
    assert work("--decoder", "rescore", "--attention-weight", "0") == ("none", beam)
    left, right, both = (
        work("--decoder", "rescore", "--reverse-weight", weight) for weight in ("0", "1", "0.3")
    )
    assert (left[0], right[0], both[0]) == ("left", "right", "both")
    assert beam < right[1] < left[1] < both[1]
    for model, why in (
        ("110m", "110m has no attention decoders"),
        ("canary-1b", "canary-1b has no attention"),
    ):
        arguments = ["plan", "--model", model, *asked[2:], "--decoder", "rescore"]
        ran = invoke(main, arguments, env={"SPOOL_HOME": str(tmp_path)})
        assert why in ran.output
