"""How amounts read, and which files are recordings."""

from decimal import Decimal
from io import StringIO
from pathlib import Path

import pytest
from rich.console import Console, RenderableType

from api.cli.connection import output_console
from api.cli.files import recordings_under, references_of
from api.cli.tables import format_duration, format_money, format_speed, job_table, table_of
from api.local.demo import demo_environ
from api.openapi.document import example
from spool.errors import InvalidRequest
from spool.recordings import EMPTY, HIDDEN
from spool.schemas import JobDetail

JOB_DETAIL = example("GET /v1/jobs/{job_id}", 200)


@pytest.mark.parametrize(
    ("seconds", "shown"),
    [
        (None, "—"),
        (0, "0.0 s"),
        (8.44, "8.4 s"),
        (59.96, "1:00"),
        (60, "1:00"),
        (184.6, "3:05"),
        (36_120, "10:02:00"),
    ],
)
def test_durations(seconds: float | None, shown: str) -> None:
    assert format_duration(seconds) == shown


@pytest.mark.parametrize(
    ("amount", "shown"),
    [
        ("0", "0.00 USD"),
        ("0E-9", "0.00 USD"),
        ("0.000000423", "0.00000042 USD"),
        ("0.000052", "0.000052 USD"),
        ("0.5", "0.50 USD"),
        ("12.3456", "12.35 USD"),
        ("1234", "1234.00 USD"),
    ],
)
def test_money(amount: str, shown: str) -> None:
    assert format_money(Decimal(amount), "USD") == shown


def test_speed() -> None:
    assert (format_speed(None), format_speed(49.96)) == ("RTFx —", "RTFx 50.0")


def test_why_a_job_failed_and_where_its_recording_is_stand_on_lines_of_their_own() -> None:
    path = "file:///archives/county-court/1974/session-of-the-third-of-march/reel-12-side-b.wav"
    error = {"code": "no_audio", "message": f"{JOB_DETAIL['name']}: no audio that can be read"}
    failed = JobDetail.model_validate(
        JOB_DETAIL
        | {"state": "failed", "error": error, "source": {"kind": "file", "uri": path, "size": None}}
    )
    text = shown(job_table([failed, JobDetail.model_validate(JOB_DETAIL)]))
    lines = [line.rstrip() for line in text.splitlines()]
    assert lines[0].split() == ["job", "state", "audio", "done"]
    assert lines[1].startswith(f"{failed.id}  failed")
    assert lines[2:4] == [f"  {path}", "  no audio that can be read (no_audio)"]
    assert len(lines) == 6
    assert shown(job_table([])).split() == ["job", "state", "audio", "done", "name"]


def test_ids_and_reasons_stay_whole_beside_long_names() -> None:
    job = JobDetail.model_validate(JOB_DETAIL | {"name": "sittings of 1974/the third of march/side B.wav"})
    (_, line) = shown(job_table([job])).splitlines()
    assert len(line.rstrip()) == 80
    assert line.startswith(f"{job.id}  {job.state.value} ")
    assert line.rstrip().endswith("…")


def test_what_a_program_reads_is_cut_nowhere(monkeypatch: pytest.MonkeyPatch) -> None:
    job = JobDetail.model_validate(JOB_DETAIL | {"name": "sittings of 1974/the third of march/side B.wav"})
    monkeypatch.delenv("COLUMNS", raising=False)
    monkeypatch.setattr("sys.stdout", written := StringIO())
    output_console().print(job_table([job]), crop=False)
    assert written.getvalue().splitlines()[1].rstrip().endswith(job.name)


def shown(what: RenderableType) -> str:
    console = Console(width=80, file=StringIO())
    console.print(what, crop=False)
    assert isinstance(console.file, StringIO)
    return console.file.getvalue()


def test_recordings_are_found_below_a_folder_and_the_rest_is_named(tmp_path: Path) -> None:
    for name in ("b/two.FLAC", "b/notes.txt", "a.wav", "c/.hidden"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_bytes(b"")
    (tmp_path / "b" / "tape 3").write_bytes(b"fLaC\0")
    (tmp_path / "._a.wav").write_bytes(b"Mac OS X")
    found, skipped = recordings_under(tmp_path)
    assert found == [tmp_path / "a.wav", tmp_path / "b" / "tape 3", tmp_path / "b" / "two.FLAC"]
    assert skipped == [
        (str(tmp_path / "._a.wav"), HIDDEN),
        (str(tmp_path / "b" / "notes.txt"), EMPTY),
        (str(tmp_path / "c" / ".hidden"), HIDDEN),
    ]
    assert recordings_under(tmp_path / "b" / "notes.txt") == ([tmp_path / "b" / "notes.txt"], [])
    for nothing in (tmp_path / "c", tmp_path / "gone"):
        with pytest.raises(InvalidRequest, match=r"There (is|are) no"):
            recordings_under(nothing)


def test_references_come_from_the_manifest_line_by_line(tmp_path: Path) -> None:
    assert references_of(tmp_path) == {}
    manifest = tmp_path / "manifest.jsonl"
    manifest.write_text('{"file": "a/b.wav", "text": "caf\u00e9"}\n\n{"file": "c.wav", "text": ""}\n')
    assert references_of(tmp_path) == {tmp_path / "a/b.wav": "caf\u00e9", tmp_path / "c.wav": ""}
    manifest.write_text('{"file": "a.wav", "text": "x"}\n{"file": 1}\n')
    with pytest.raises(InvalidRequest, match=r"manifest\.jsonl:2 "):
        references_of(tmp_path)


def test_a_demo_never_uses_the_stores_of_this_machine(tmp_path: Path) -> None:
    environ = {
        "SPOOL_DATABASE_URL": "postgresql://fleet",
        "SPOOL_API_TOKEN_FILE": "/secret",
        "SPOOL_PRICE_PER_HOUR": "0.4",
        "PATH": "/bin",
    }
    own = demo_environ(environ, tmp_path / "home", tmp_path)
    assert own.keys() == {
        "SPOOL_PRICE_PER_HOUR",
        "PATH",
        "SPOOL_HOME",
        "SPOOL_API_PORT",
        "SPOOL_SOURCE_ROOTS",
        "SPOOL_HEARTBEAT_SECONDS",
    }


def test_a_table_on_a_narrow_terminal_loses_no_letter_of_its_last_column() -> None:
    rows = [["clo_01M8DM3M4ME46VWF42JME5X8NF", "0.5 to 1.5 s", "until 2099-01-01", "anybody", "Her wish"]]
    printed = StringIO()
    table = table_of(("closure", "what", "closed", "by", "reason"), rows)
    Console(file=printed, width=80).print(table)
    assert {"Her", "wish"} <= set(printed.getvalue().split())
