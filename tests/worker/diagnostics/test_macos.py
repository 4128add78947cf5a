"""What a Mac says of itself, read: outputs in the form that others have published of macOS 14 and 15."""

import json

import pytest

from worker.diagnostics import metal, rosetta, sleep
from worker.diagnostics.macos import macos

M3 = {
    "SPDisplaysDataType": [
        {
            "_name": "Apple M3 Pro",
            "spdisplays_mtlgpufamilysupport": "spdisplays_metal3",
            "sppci_cores": "18",
            "sppci_model": "Apple M3 Pro",
        }
    ]
}
ASLEEP = """System-wide power settings:
Currently in use:
 standby              1
 displaysleep         10
 sleep                1
 womp                 1
"""
AWAKE = ASLEEP.replace(" sleep                1", " sleep                0")
HELD = ASLEEP.replace(
    " sleep                1", " sleep                1 (sleep prevented by caffeinate, powerd)"
)


@pytest.mark.parametrize(
    ("said", "level", "words"),
    [("15.1\n", "ok", "macOS 15.1"), ("13.6.1\n", "fail", "macOS 13.6.1"), ("", "warn", "unknown")],
)
def test_the_version(said: str, level: str, words: str) -> None:
    found = macos(said)
    assert (found.level, words in found.text) == (level, True)
    assert bool(found.advice) is (level != "ok")


def test_metal_and_its_cores() -> None:
    found = metal(json.dumps(M3))
    assert (found.level, found.text) == ("ok", "Apple M3 Pro, 18 cores, metal3")


@pytest.mark.parametrize(
    "said", ["", "{}", "[]", '{"SPDisplaysDataType": []}', '{"SPDisplaysDataType": [{"_name": "Display"}]}']
)
def test_a_mac_without_metal_is_told_what_to_do(said: str) -> None:
    found = metal(said)
    assert found.level == "fail"
    assert found.advice


def test_an_intel_python_is_found() -> None:
    assert rosetta("1\n").level == "fail"
    assert rosetta("0\n").level == "ok"
    assert rosetta("").level == "ok"


def test_a_mac_that_falls_asleep() -> None:
    assert sleep(ASLEEP).level == "warn"
    assert "after 1 idle minutes" in sleep(ASLEEP).text
    assert sleep(AWAKE).level == "ok"
    assert sleep(HELD).level == "ok"
    assert sleep("").level == "warn"
