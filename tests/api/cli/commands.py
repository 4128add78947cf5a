"""Runs the commands as a person would: as processes, in a home of the test's own, without other settings."""

import os
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parents[3]
SAMPLES = ROOT / "samples" / "demo-tdt"


@dataclass
class Commands:
    """The `spool` command in one home."""

    home: Path
    extra: dict[str, str]

    @property
    def environ(self) -> dict[str, str]:
        kept = {name: value for name, value in os.environ.items() if not name.startswith("SPOOL_")}
        return (
            kept
            | {
                "SPOOL_HOME": str(self.home),
                "SPOOL_MODELS": f"demo-tdt={ROOT}/models/demo",
                "PYTHONPATH": str(ROOT),
                "COLUMNS": "100",
            }
            | self.extra
        )

    def command(self, *arguments: str) -> list[str]:
        return [sys.executable, "-W", "error", "-m", "api.cli.main", *arguments]

    def run(self, *arguments: str, code: int = 0) -> subprocess.CompletedProcess[str]:
        done = subprocess.run(
            self.command(*arguments),
            env=self.environ,
            cwd=self.home.parent,
            capture_output=True,
            text=True,
            timeout=150,
            check=False,
        )
        assert done.returncode == code, (arguments, done.returncode, done.stdout, done.stderr)
        return done

    def start(self, *arguments: str, log: Path) -> "subprocess.Popen[bytes]":
        with log.open("wb") as output:
            return subprocess.Popen(
                self.command(*arguments),
                env=self.environ,
                cwd=self.home.parent,
                stdout=output,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )


def processes_of(home: Path) -> Sequence[str]:
    """Commands of live processes whose environment or arguments name this home."""
    if not Path("/proc/self/environ").exists():
        listing = subprocess.run(
            ["ps", "axeww", "-o", "command="], capture_output=True, text=True, check=True
        )
        return [line for line in listing.stdout.splitlines() if str(home) in line]
    found = []
    for entry in Path("/proc").iterdir():
        try:
            told = (entry / "environ").read_bytes() + (entry / "cmdline").read_bytes()
        except OSError:  # no process, somebody else's, or gone
            continue
        if os.fsencode(home) in told:
            found.append((entry / "cmdline").read_bytes().replace(b"\0", b" ").decode())
    return found
