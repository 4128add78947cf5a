"""The findings of `spool-worker check` about macOS: version, Metal, sleep, Rosetta.

Each is made from the output of a command by a pure function.
"""

import json
import re
import subprocess
from collections.abc import Iterator

from worker.diagnostics.finding import Finding

OLDEST_MACOS = 14


def check_mac() -> Iterator[Finding]:
    """All findings about this Mac. Never raises: a command that fails is a finding."""
    yield macos(_output_of("sw_vers", "-productVersion"))
    yield metal(_output_of("system_profiler", "-json", "SPDisplaysDataType"))
    yield rosetta(_output_of("sysctl", "-n", "sysctl.proc_translated"))
    yield sleep(_output_of("pmset", "-g"))


def macos(output: str) -> Finding:
    """`sw_vers -productVersion`."""
    major = output.strip().partition(".")[0]
    if not major.isdigit():
        return Finding("macos", "warn", "the version is unknown", "Run sw_vers.")
    if int(major) < OLDEST_MACOS:
        return Finding(
            "macos", "fail", f"macOS {output.strip()}", f"MLX needs macOS {OLDEST_MACOS} or newer."
        )
    return Finding("macos", "ok", f"macOS {output.strip()}")


def metal(output: str) -> Finding:
    """`system_profiler -json SPDisplaysDataType`."""
    try:
        devices = json.loads(output)["SPDisplaysDataType"]
        families = {str(each["spdisplays_mtlgpufamilysupport"]): each for each in devices}
    except (ValueError, KeyError, TypeError):
        advice = "A virtual machine may have none; otherwise see system_profiler SPDisplaysDataType."
        return Finding("metal", "fail", "no GPU reports support for Metal", advice)
    if not families:
        return Finding("metal", "fail", "no GPU is listed", "A worker for the pool metal needs one.")
    family, device = next(iter(families.items()))
    cores = f", {device['sppci_cores']} cores" if "sppci_cores" in device else ""
    name = device.get("sppci_model", "GPU")
    return Finding("metal", "ok", f"{name}{cores}, {family.removeprefix('spdisplays_')}")


def rosetta(output: str) -> Finding:
    """`sysctl -n sysctl.proc_translated`: 1 under Rosetta."""
    if output.strip() == "1":
        return Finding(
            "rosetta",
            "fail",
            "this Python is built for Intel and runs translated",
            "Install a Python for arm64.",
        )
    return Finding("rosetta", "ok", "not translated")


def sleep(output: str) -> Finding:
    """`pmset -g`: minutes until the system sleeps by itself, 0 for never."""
    match = re.search(r"^\s*sleep\s+(\d+)", output, re.MULTILINE)
    if match is None:
        return Finding("sleep", "warn", "pmset does not report when the Mac sleeps", "Run pmset -g.")
    minutes = int(match[1])
    if minutes == 0 or "caffeinate" in output:
        return Finding("sleep", "ok", "the Mac does not sleep by itself")
    advice = "Install the worker as a service (ops/mac/install.sh), or: sudo pmset -a sleep 0"
    return Finding("sleep", "warn", f"the Mac sleeps after {minutes} idle minutes", advice)


def _output_of(*command: str) -> str:
    """The output of a command; empty if it fails."""
    try:
        return subprocess.run(command, capture_output=True, text=True, check=False, timeout=60).stdout
    except (OSError, subprocess.TimeoutExpired):
        return ""
