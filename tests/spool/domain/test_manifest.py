"""Manifests line by line, and what a batch will take and cost."""

import io
import json
import tracemalloc
from collections.abc import Iterator

import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from typing_extensions import Buffer

from spool.domain import (
    BadLine,
    ManifestLine,
    ManifestReport,
    estimates,
    manifest,
    manifest_lines,
    number_lines,
    read_manifest_line,
    rows_of,
)
from spool.errors import InvalidRequest


def read(*lines: bytes | str) -> tuple[list[tuple[int, ManifestLine]], ManifestReport]:
    text = b"\n".join(line if isinstance(line, bytes) else line.encode() for line in lines)
    report = ManifestReport()
    good = []
    for number, line in manifest_lines(io.BytesIO(text), report):
        if isinstance(line, BadLine):
            report.add(line)
        else:
            good.append((number, line))
    return good, report


GOOD = '{"source": "s3://archive/a b/ü.flac", "custom_id": "Spule 1", "tags": {"box": "=1+1"}}'


def test_good_lines_come_with_their_numbers_and_blank_ones_are_nothing() -> None:
    good, report = read(b"\xef\xbb\xbf" + GOOD.encode() + b"\r", "", "  ", '{"source": "https://x/y"}')
    assert [number for number, _ in good] == [1, 4]
    assert good[0][1].custom_id == "Spule 1"
    assert good[0][1].tags == {"box": "=1+1"}, "kept as it is; who writes CSV quotes it"
    assert (report.lines, report.bad, report.bad_lines) == (2, 0, [])


@pytest.mark.parametrize(
    ("line", "code"),
    [
        (b'{"source": "s3://b/k"', "not_json"),
        (b"\xff\xfe", "not_json"),
        (b"[" * 30_000, "not_json"),
        (b'["s3://b/k"]', "not_json"),
        (b'{"custom_id": "x"}', "invalid_request"),
        (b'{"source": "s3://b/k", "custom_id": ""}', "invalid_request"),
        (b'{"source": "s3://b/k", "custom_id": "a\\u0000b"}', "invalid_request"),
        (b'{"source": "s3://b/k", "custom_id": "\\ud800"}', "invalid_request"),
        (b'{"source": "s3://b/k", "custom_id": 7}', "invalid_request"),
        (b'{"source": "s3://b/k", "speed": 2}', "invalid_request"),
        (b'{"source": "s3://b/k", "tags": {"a b": "x"}}', "invalid_request"),
        (b'{"source": "s3://b/k", "tags": {"a": "' + b"x" * 201 + b'"}}', "invalid_request"),
        (b'{"source": "' + b"x" * 70_000 + b'"}', "line_too_long"),
    ],
)
def test_a_broken_line_is_reported_by_number_and_its_neighbours_are_not(line: bytes, code: str) -> None:
    good, report = read(GOOD, line, GOOD)
    assert [number for number, _ in good] == [1, 3]
    assert (report.lines, report.bad) == (3, 1)
    assert (report.bad_lines[0].line, report.bad_lines[0].code) == (2, code)
    assert report.bad_lines[0].message
    json.dumps(report.bad_lines[0].message).encode()


def test_a_table_without_the_column_source_is_refused_by_its_first_line() -> None:
    _, report = read("file,language", "reel 1.wav,en")
    assert "nor a CSV header with the column `source`" in report.bad_lines[0].message
    assert report.bad_lines[1].message == "The line is not JSON in UTF-8."


def test_a_line_of_ten_megabytes_is_never_held() -> None:
    class Long(io.RawIOBase):
        """10 MB without an end of line, made as they are read, then a good line."""

        def __init__(self) -> None:
            self.left = 10_000_000
            self.tail = b"\n" + GOOD.encode()

        def readable(self) -> bool:
            return True

        def readinto(self, target: Buffer) -> int:
            buffer = memoryview(target)
            block = b"x" * min(len(buffer), self.left)
            self.left -= len(block)
            if not block:
                block, self.tail = self.tail[: len(buffer)], self.tail[len(buffer) :]
            buffer[: len(block)] = block
            return len(block)

    tracemalloc.start()
    lines = list(number_lines(io.BufferedReader(Long())))
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert lines == [(1, None), (2, GOOD.encode())]
    assert peak < 1_000_000


def test_the_report_counts_all_and_shows_the_first() -> None:
    _, report = read(*["no"] * 250)
    assert (report.lines, report.bad, len(report.bad_lines)) == (250, 250, manifest.REPORTED)


def test_a_manifest_has_an_end(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(manifest, "LINES", 3)
    with pytest.raises(InvalidRequest, match="at most 3 lines"):
        read(*[GOOD] * 4)


def test_an_id_is_first_once() -> None:
    seen = manifest.CustomIds()
    assert [seen.first(name) for name in ("a", "b", "a")] == [True, True, False]


@example([b"\x00\r\x00"], 1)
@given(st.lists(st.binary(max_size=300)), st.integers(1, 100))
def test_whatever_comes_every_line_is_counted_once(lines: list[bytes], limit: int) -> None:
    stream = b"\n".join(line.replace(b"\n", b" ") for line in lines)
    numbers = []
    for number, text in number_lines(io.BytesIO(stream), limit):
        numbers.append(number)
        assert text is None or len(text) <= limit + 1
    rows = list(rows_of(io.BytesIO(stream)))
    assert all(isinstance(read_manifest_line(number, row), BadLine | ManifestLine) for number, row in rows)
    assert numbers == sorted(set(numbers))
    kept = [n for n, line in enumerate(lines, 1) if line.replace(b"\n", b" ").strip()]
    assert set(kept) - {1} <= set(numbers), "only blank lines (and a bare BOM) are left out"


@pytest.mark.parametrize("separator", [",", ";", "\t"])
def test_a_manifest_may_be_csv(separator: str) -> None:
    rows = [
        ["source", "custom_id", "tags.box", "options.beam", "options.decoder", "priority"],
        ["file:///a/1.wav", "one", "7", "8", "beam", "high"],
        ["s3://b/two.wav", "", "", "", "", ""],
        ["", "three", "", "", "", ""],
        ["file:///a/4.wav", "four", "", "", "", "", "too much"],
        ['"file:///a/5.wav'],
    ]
    text = "\ufeff" + "\r\n".join(separator.join(row) for row in rows)
    report = ManifestReport()
    lines = dict(manifest_lines(io.BytesIO(text.encode()), report))
    assert lines[2] == ManifestLine(
        source="file:///a/1.wav",
        custom_id="one",
        tags={"box": "7"},
        options={"beam": 8, "decoder": "beam"},
        priority="high",
    )
    assert lines[3] == ManifestLine(source="s3://b/two.wav")
    bad = [lines[number] for number in (4, 5, 6)]
    assert [line.code for line in bad if isinstance(line, BadLine)] == [
        "invalid_request",
        "not_csv",
        "not_csv",
    ]
    assert report.lines == 5, "without the header"


def test_a_csv_with_an_unknown_column_is_refused_by_its_name() -> None:
    with pytest.raises(InvalidRequest, match=r"line 1: a manifest has no column 'box'; it has source, "):
        list(manifest_lines(io.BytesIO(b"source,box\nfile:///a.wav,7\n"), ManifestReport()))


def sums(**fields: float) -> estimates.Sums:
    told: dict[str, float] = {
        "open_jobs": 3,
        "open_known_seconds": 70.0,
        "open_unknown": 2,
        "known": 1,
        "known_seconds": 100.0,
        "billed_audio_seconds": 30.0,
        "billable_nanos": 3000,
        "recent_audio_seconds": 30.0,
        "recent_wall_seconds": 10.0,
    }
    return estimates.Sums(**(told | fields))  # type: ignore[arg-type]


def test_what_is_left_follows_from_the_mean_length_pace_and_price() -> None:
    look = estimates.outlook(sums())
    assert look.audio_left_seconds == 270.0
    assert "each is assumed to take 100 s" in look.audio_basis
    assert (look.pace, look.time_left_seconds) == (3.0, 90.0)
    assert "3.0 s of audio a second" in look.time_basis
    assert look.expected_nanos == 3000 + 27_000


def cases() -> Iterator[tuple[dict[str, float], float | None, float | None, int | None]]:
    yield {"open_jobs": 0, "open_unknown": 0, "open_known_seconds": 0.0}, 0.0, 0.0, 3000
    yield {"known": 0, "open_known_seconds": 0.0}, None, None, None
    yield {"recent_audio_seconds": 0.0}, 270.0, None, 30_000
    yield {"billed_audio_seconds": 0.0, "billable_nanos": 0}, 270.0, 90.0, None
    yield {"open_unknown": 0}, 70.0, 70 / 3, 10_000


@pytest.mark.parametrize(("told", "audio", "time", "cost"), list(cases()))
def test_where_there_is_nothing_to_judge_by_it_says_so(
    told: dict[str, float], audio: float | None, time: float | None, cost: int | None
) -> None:
    look = estimates.outlook(sums(**told))
    assert (look.audio_left_seconds, look.time_left_seconds, look.expected_nanos) == (audio, time, cost)
    assert look.audio_basis
    assert look.time_basis
    assert look.cost_basis
