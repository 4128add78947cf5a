"""Reads the bodies in this folder. Knows where they are and which header each needs; nothing of what they
compute."""

from pathlib import Path

from kernels import text
from kernels.text import Kernel

_FOLDER = Path(__file__).parent


def read_body(name: str, inputs: str, outputs: str, header: str = "") -> Kernel:
    """Read `name`.metal of this folder; `inputs` and `outputs` are names between blanks, `header` a file to
    put before."""
    shared = (text.FOLDER / "slots.h").read_text()
    own = (_FOLDER / header).read_text() if header else ""
    body = (_FOLDER / f"{name}.metal").read_text()
    return Kernel(name, tuple(inputs.split()), tuple(outputs.split()), body, shared + own)
