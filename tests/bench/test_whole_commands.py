"""`ops.bench.peers.whole`: what a command took, its children's work included, and the table of all."""

import os
import sys
from pathlib import Path

from ops.bench.peers.whole import Measured, Recording, read_recordings, run_command, table

SAMPLES = Path(__file__).parents[2] / "samples" / "open"
BUSY = """
import subprocess, sys, time
if len(sys.argv) == 1:
    subprocess.run([sys.executable, __file__, "child"], check=True)
    print("done")
else:
    kept = bytearray(60_000_000)
    while time.process_time() < 1.0:
        pass
"""


def test_a_command_is_charged_for_what_its_child_did(tmp_path: Path) -> None:
    script = tmp_path / "busy.py"
    script.write_text(BUSY)

    measured, printed = run_command([sys.executable, str(script)], os.environ)

    assert printed == "done\n"
    assert measured.processor > 0.5, "the child's second, but for what it did after it was last seen"
    assert measured.memory > 60_000_000


def test_the_table_compares_speed_and_errors() -> None:
    recordings = [Recording(Path("a.flac"), "one two", 10.0), Recording(Path("b.flac"), "three four", 10.0)]
    best = {
        "ours": Measured(4.0, 5.0, 500_000_000, {"a.flac": "one two", "b.flac": "three four"}),
        "theirs": Measured(2.0, 3.0, 250_000_000, {"a.flac": "one", "b.flac": "three four"}),
    }

    rows = [row.split() for row in table(recordings, best, spoken=True)]

    assert rows[1] == ["ours", "4.0", "5.0", "5.0", "1.00", "500", "0.0"]
    assert rows[2] == ["theirs", "2.0", "3.0", "10.0", "2.00", "250", "25.0"]


def test_recordings_come_from_the_manifests() -> None:
    recordings = read_recordings([SAMPLES])
    assert len(recordings) == 21
    assert all(each.path.is_file() and each.text and each.seconds > 0 for each in recordings)
