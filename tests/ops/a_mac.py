"""A Mac on Linux: what only macOS has (tests/ops/mac) is stood in for, the rest of ops/mac is real."""

import json
import os
import subprocess
from pathlib import Path

from ops.testbed.processes import ROOT

DEMO = ROOT / "models/demo"
LABEL = "org.spool.worker"


class Mac:
    """A machine whose file system begins in a temporary folder."""

    def __init__(self, folder: Path) -> None:
        self.root = folder / "root"
        self.app = self.root / "usr/local/spool"
        self.plist = self.root / f"Library/LaunchDaemons/{LABEL}.plist"
        self.rotation = self.root / "etc/newsyslog.d/spool.conf"
        self.standin = folder / "standin"
        self.standin.mkdir()
        kept = {name: value for name, value in os.environ.items() if not name.startswith("SPOOL_")}
        self.environment = {
            **kept,
            "PATH": f"{Path(__file__).parent / 'mac'}:{os.environ['PATH']}",
            "STANDIN": str(self.standin),
            "SPOOL_INSTALL_ROOT": str(self.root),
            "SPOOL_READY_SECONDS": "60",
        }

    def script(self, *arguments: str, source: Path = ROOT, **told: str) -> "subprocess.CompletedProcess[str]":
        command = [str(source / "ops/mac/install.sh"), *arguments]
        return subprocess.run(
            command,
            env={**self.environment, **told},
            capture_output=True,
            text=True,
            timeout=170,
            check=False,
        )

    def calls(self, program: str) -> list[list[str]]:
        file = self.standin / "calls"
        calls = [json.loads(line) for line in file.read_text().splitlines()] if file.exists() else []
        return [words[1:] for words in calls if words[0] == program]

    @property
    def pid(self) -> int:
        """The worker's, as launchd knows it."""
        return int(json.loads((self.standin / "running.json").read_text())["pid"])

    def worker(self, *arguments: str) -> "subprocess.CompletedProcess[str]":
        """The release's own command."""
        command = ["sh", str(self.app / "current/ops/mac/worker.sh"), *arguments]
        environment = {**self.environment, "SPOOL_APP": str(self.app)}
        return subprocess.run(
            command, env=environment, capture_output=True, text=True, timeout=120, check=False
        )
