"""What a model hears in sounds without speech, where every word is invented.

    python -m ops.accuracy.whisper.sounds MODEL [--seconds N]

Prints the model's answer to each sound as one utterance, without the silence gate that chunks go through
first. Sounds are float32 at 16 kHz and the same on every run.
"""

# ruff: noqa: E402 - the BLAS has to be loaded before MLX is

import argparse
from collections.abc import Callable

from worker.machine.blas import preload_blas

preload_blas()

import numpy as np
from numpy.typing import NDArray

from worker.engine.protocol import Failure
from worker.engine.recognizer import ModelRecognizer
from worker.models.load import load_model
from worker.models.requests import DecodeRequest

RATE = 16_000
Samples = NDArray[np.float32]
# Triads of C major, A minor, F major and G major, in Hz.
CHORDS = ((261.6, 329.6, 392.0), (220.0, 261.6, 329.6), (174.6, 220.0, 261.6), (196.0, 246.9, 293.7))
CHORD_SECONDS = 0.5


def silence(seconds: float) -> Samples:
    """Digital zeros."""
    return np.zeros(round(seconds * RATE), np.float32)


def white_noise(seconds: float, level: float) -> Samples:
    """Gaussian noise of that root mean square, in dBFS."""
    noise = np.random.default_rng(1).standard_normal(round(seconds * RATE))
    return (noise * 10 ** (level / 20)).astype(np.float32)


def room_tone(seconds: float, level: float = -50.0) -> Samples:
    """Noise whose power falls with the frequency, as air conditioning and distant traffic sound."""
    white = np.random.default_rng(2).standard_normal(round(seconds * RATE))
    spectrum = np.fft.rfft(white)
    spectrum[1:] /= np.sqrt(np.arange(1, len(spectrum)))
    spectrum[0] = 0
    tone = np.fft.irfft(spectrum, len(white))
    return (tone / tone.std() * 10 ** (level / 20)).astype(np.float32)


def hum(seconds: float, level: float = -30.0, mains: float = 50.0) -> Samples:
    """A mains frequency with its harmonics, each half as loud as the one below."""
    times = np.arange(round(seconds * RATE)) / RATE
    tone = sum(0.5**order * np.sin(2 * np.pi * mains * (order + 1) * times) for order in range(6))
    return np.asarray(tone / np.std(tone) * 10 ** (level / 20), np.float32)


def music(seconds: float, level: float = -20.0) -> Samples:
    """Four chords over and over, struck and fading, with overtones."""
    times = np.arange(round(seconds * RATE)) / RATE
    since = times % CHORD_SECONDS
    which = (times // CHORD_SECONDS).astype(int) % len(CHORDS)
    tone = np.zeros(len(times))
    for voice in range(3):
        pitch = np.array([chord[voice] for chord in CHORDS])[which]
        for order in range(1, 5):
            tone += np.sin(2 * np.pi * pitch * order * since) / order**2
    tone *= np.exp(-3 * since)
    return np.asarray(tone / tone.std() * 10 ** (level / 20), np.float32)


SOUNDS: dict[str, Callable[[float], Samples]] = {
    "silence": silence,
    "hum": hum,
    "white noise, -30 dBFS": lambda seconds: white_noise(seconds, -30.0),
    "white noise, -60 dBFS": lambda seconds: white_noise(seconds, -60.0),
    "room tone": room_tone,
    "music": music,
}


def main() -> None:
    """Ask the model."""
    parser = argparse.ArgumentParser(prog="python -m ops.accuracy.whisper.sounds", description=__doc__)
    parser.add_argument("model", help="folder of the model")
    parser.add_argument("--seconds", type=float, default=10.0)
    options = parser.parse_args()
    recognizer = ModelRecognizer(load_model(options.model))
    utterances = [make(options.seconds) for make in SOUNDS.values()]
    answers = recognizer.recognize(utterances, [DecodeRequest()] * len(utterances))
    for name, answer in zip(SOUNDS, answers, strict=True):
        text = (
            str(answer.error) if isinstance(answer, Failure) else " ".join(word.text for word in answer.words)
        )
        print(f"{name:24s} {text or '(no word)'}")


if __name__ == "__main__":
    main()
