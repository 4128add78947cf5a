"""What docker-compose.yml says, and the files that its script writes."""

import re
import shutil
import subprocess
from pathlib import Path
from typing import Any

import yaml

from ops.testbed.processes import ROOT

COMPOSE: dict[str, Any] = yaml.safe_load((ROOT / "docker-compose.yml").read_text())
SERVICES: dict[str, dict[str, Any]] = COMPOSE["services"]
EXAMPLE = ROOT / "ops/images/example.env"


def write_secrets(folder: Path, *arguments: str) -> str:
    """Run secrets.sh as if `folder` were the checkout; what it prints."""
    images = folder / "ops/images"
    images.mkdir(parents=True, exist_ok=True)
    for name in ("secrets.sh", "example.env"):
        shutil.copy(ROOT / "ops/images" / name, images)
    command = ["sh", str(images / "secrets.sh"), *arguments]
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout


def read_env(text: str) -> dict[str, str]:
    """The lines NAME=value of an .env file."""
    lines = re.findall(r"^([A-Z0-9_]+)=(.*)$", text, re.MULTILINE)
    return {name: value.strip().strip("'") for name, value in lines}


def example_settings() -> dict[str, str]:
    """Every setting that the example shows, as if set."""
    return read_env(re.sub(r"^#(?=[A-Z0-9_]+=)", "", EXAMPLE.read_text(), flags=re.MULTILINE))
