"""The programs that read a text aloud: espeak-ng, and flite and Pico where they are installed.

Each gives float32 samples at 16 kHz with a little silence around them, or None where the program fails; rate,
pitch and what else the program lets one choose are drawn from the given generator. Knows no corpus.
"""

from __future__ import annotations

import importlib
import io
import shutil
import subprocess
import tempfile
from importlib.util import find_spec
from pathlib import Path

import numpy as np
import soundfile
import soxr

from ops.train.data.features import RATE, Audio
from ops.train.data.voices import FLITE

Rng = np.random.Generator


def has_flite() -> bool:
    return shutil.which("flite") is not None


def has_pico() -> bool:
    return find_spec("ttspico") is not None


def say(text: str, voice: str, rng: Rng) -> Audio | None:
    """The text in that voice at a random rate and pitch, float32 at 16 kHz; None where espeak-ng fails."""
    rate, pitch, loud = int(rng.integers(115, 215)), int(rng.integers(15, 86)), int(rng.integers(60, 160))
    settings = ["-s", str(rate), "-p", str(pitch), "-a", str(loud), "-g", str(rng.choice([0, 0, 1, 2, 4, 8]))]
    command = ["espeak-ng", "-v", voice, *settings, "--stdout", text]
    return _heard(subprocess.run(command, capture_output=True, check=False).stdout, rng)


def say_flite(text: str, voice: str, rng: Rng) -> Audio | None:
    """The same by one of flite's voices, which are cut from recordings."""
    stretch, pitch = rng.uniform(0.8, 1.3), rng.uniform(0.8, 1.25) * FLITE[voice]
    with tempfile.NamedTemporaryFile(suffix=".wav") as file:
        settings = ["--setf", f"duration_stretch={stretch:.2f}", "--setf", f"int_f0_target_mean={pitch:.0f}"]
        command = ["flite", "-voice", voice, *settings, "-t", text, "-o", file.name]
        subprocess.run(command, capture_output=True, check=False)
        return _heard(Path(file.name).read_bytes(), rng, size=rng.uniform(0.9, 1.12))


def say_pico(text: str, voice: str, rng: Rng) -> Audio | None:
    """The same by one of SVOX Pico's voices, hidden Markov models of a speaker each; text without markup."""
    pitch, speed = int(rng.integers(75, 135)), int(rng.integers(75, 135))
    marked = f"<pitch level='{pitch}'><speed level='{speed}'>{text}</speed></pitch>"
    # Made anew each time, as what one says depends on what it said before.
    sound = importlib.import_module("ttspico").TtsEngine(voice).speak(marked)
    if not sound:
        return None
    return _spaced(
        np.frombuffer(sound, "<i2").astype(np.float32) / np.float32(32768), RATE, rng, rng.uniform(0.88, 1.14)
    )


def _heard(sound: bytes, rng: Rng, size: float = 1.0) -> Audio | None:
    try:
        samples, source_rate = soundfile.read(io.BytesIO(sound), dtype="float32")
    except soundfile.LibsndfileError:
        return None
    return _spaced(samples, source_rate, rng, size)


def _spaced(samples: Audio, source_rate: int, rng: Rng, size: float) -> Audio | None:
    """size: of the speaker; pitch, formants and tempo are divided by it."""
    samples = soxr.resample(samples, source_rate / size, RATE, "MQ")
    if len(samples) < RATE // 5:
        return None
    before, after = (np.zeros(int(rng.uniform(0.02, 0.5) * RATE), np.float32) for _ in range(2))
    return np.concatenate([before, samples, after]).astype(np.float32)
