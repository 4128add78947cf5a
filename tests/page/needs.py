"""What the page's tests need: a Chromium, and a driver that runs. Without them they are left out, and the run
says so.

With CI set nothing is left out: a browser that is missing there is a failure.
"""

import os
import shutil
import subprocess
from pathlib import Path

from playwright._impl._driver import compute_driver_executable

BROWSER = next(
    (
        found
        for name in ("chromium", "chromium-browser", "google-chrome")
        if (found := shutil.which(name)) is not None
    ),
    None,
)


def _is_driven() -> bool:
    node, _ = compute_driver_executable()
    try:
        return (
            subprocess.run([node, "--version"], capture_output=True, check=False, timeout=60).returncode == 0
        )
    except (OSError, subprocess.SubprocessError):
        return False


left_out: list[str] = []
if not os.environ.get("CI") and (BROWSER is None or not _is_driven()):
    left_out += sorted(path.name for path in Path(__file__).parent.glob("test_*.py"))
