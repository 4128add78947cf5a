"""samples/open: every recording decodes, has a reference, a free licence and a line in the README."""

import json
from pathlib import Path

import av
import pytest

from ops.accuracy.make_open_samples import public_licence
from spool.wer import normal_words

SAMPLES = Path(__file__).parents[2] / "samples"
LINES = [json.loads(line) for line in (SAMPLES / "open" / "manifest.jsonl").read_text().splitlines()]


def seconds_of(path: Path) -> float:
    with av.open(str(path)) as container:
        return sum(frame.samples / frame.sample_rate for frame in container.decode(audio=0))


def test_the_manifest_and_the_folder_agree() -> None:
    files = {path.relative_to(SAMPLES / "open").as_posix() for path in (SAMPLES / "open").rglob("*.*")}
    assert {line["file"] for line in LINES} == files - {"manifest.jsonl"}


def test_references_are_words_as_they_are_compared() -> None:
    for line in LINES:
        assert normal_words(line["text"]) == line["text"].split()
        assert len(line["text"].split()) >= 6


def test_every_recording_is_free_and_credited_in_the_readme() -> None:
    readme = (SAMPLES / "README.md").read_text()
    for line in LINES:
        assert line["licence"] in {"CC-BY-4.0", "public domain"}
        assert f"| `{line['file']}` |" in readme
        assert line["source"] in readme


def test_the_archive_stays_small_and_short() -> None:
    seconds = [seconds_of(SAMPLES / "open" / line["file"]) for line in LINES]
    assert 240 <= sum(seconds) <= 360
    assert max(seconds) >= 120
    assert sum((SAMPLES / "open" / line["file"]).stat().st_size for line in LINES) <= 6_000_000


@pytest.mark.parametrize("licence", ["CC-BY-SA-4.0", "BSD-like (CMU)", "MIT", "CC0"])
def test_other_licences_are_refused(licence: str) -> None:
    with pytest.raises(ValueError, match="samples are CC-BY or in the public domain"):
        public_licence(licence)
