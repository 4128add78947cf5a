"""What `spool-worker check` asks of macOS: its version, Metal, the GPU's memory limit, sleep, Rosetta.

Each question is a command's output and a pure function that reads it. Knows macOS; asks nothing elsewhere.
"""

import json
import re
import subprocess
from collections.abc import Iterator

from worker.diagnostics.finding import Finding

OLDEST_MACOS = 14


def check_mac() -> Iterator[Finding]:
    """Every finding about this Mac. Raises nothing: what does not answer is a finding."""
    yield macos(_said("sw_vers", "-productVersion"))
    yield metal(_said("system_profiler", "-json", "SPDisplaysDataType"))
    yield rosetta(_said("sysctl", "-n", "sysctl.proc_translated"))
    yield sleep(_said("pmset", "-g"))


def macos(said: str) -> Finding:
    """`sw_vers -productVersion`."""
    major = said.strip().partition(".")[0]
    if not major.isdigit():
        return Finding("macos", "warn", "its version is not told", "Run sw_vers.")
    if int(major) < OLDEST_MACOS:
        return Finding("macos", "fail", f"macOS {said.strip()}", f"MLX needs macOS {OLDEST_MACOS} or newer.")
    return Finding("macos", "ok", f"macOS {said.strip()}")


def metal(said: str) -> Finding:
    """`system_profiler -json SPDisplaysDataType`."""
    try:
        devices = json.loads(said)["SPDisplaysDataType"]
        families = {str(each["spdisplays_mtlgpufamilysupport"]): each for each in devices}
    except (ValueError, KeyError, TypeError):
        advice = "In a virtual machine there may be none; else see system_profiler SPDisplaysDataType."
        return Finding("metal", "fail", "no GPU tells that it has Metal", advice)
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
            "rosetta", "fail", "this Python is for Intel, translated", "Install a Python for arm64."
        )
    return Finding("rosetta", "ok", "not translated")


def sleep(output: str) -> Finding:
    """`pmset -g`: minutes until the system sleeps by itself, 0 for never."""
    match = re.search(r"^\s*sleep\s+(\d+)", output, re.MULTILINE)
    if match is None:
        return Finding("sleep", "warn", "pmset does not tell when it sleeps", "Run pmset -g.")
    minutes = int(match[1])
    if minutes == 0 or "caffeinate" in output:
        return Finding("sleep", "ok", "it does not fall asleep by itself")
    advice = "Install the worker as a service (ops/mac/install.sh), or: sudo pmset -a sleep 0"
    return Finding("sleep", "warn", f"it sleeps after {minutes} minutes without a person", advice)


def _said(*command: str) -> str:
    """What a command prints; nothing where it fails."""
    try:
        return subprocess.run(command, capture_output=True, text=True, check=False, timeout=60).stdout
    except (OSError, subprocess.TimeoutExpired):
        return ""
