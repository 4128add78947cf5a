"""Writes a recording of a sample archive in the format that its name states."""

from pathlib import Path

import av
import numpy as np
import numpy.typing as npt
import soundfile
import soxr

Audio = npt.NDArray[np.float32]
RATE = 16_000
_CONTAINERS = {".opus": "OGG", ".ogg": "OGG", ".mp3": "MP3", ".wav": "WAV", ".flac": "FLAC"}


def write_audio(path: Path, audio: Audio, rate: int = RATE, subtype: str | None = None) -> None:
    """Write float32 `[n]` or `[n, channels]` at 16 kHz, resampled to `rate`; M4A is always AAC at 16 kHz."""
    path.parent.mkdir(parents=True, exist_ok=True)
    audio = np.clip(audio, -1.0, 1.0)
    if rate != RATE:
        audio = soxr.resample(audio, RATE, rate)
    if path.suffix == ".m4a":
        _write_m4a(path, audio)
        return
    channels = 1 if audio.ndim == 1 else audio.shape[1]
    # libsndfile's Vorbis encoder overflows its stack on one long write.
    with soundfile.SoundFile(path, "w", rate, channels, subtype, format=_CONTAINERS[path.suffix]) as file:
        for start in range(0, len(audio), RATE):
            file.write(audio[start : start + RATE])


def _write_m4a(path: Path, audio: Audio) -> None:
    """AAC at 48 kbit/s, mono, 16 kHz."""
    with av.open(str(path), "w", format="mp4") as container:
        stream = container.add_stream("aac", rate=RATE, layout="mono", bit_rate=48_000)
        frame = av.AudioFrame.from_ndarray(audio[None].astype(np.float32), format="fltp", layout="mono")
        frame.sample_rate = RATE
        resampler = av.AudioResampler(format="fltp", layout="mono", rate=RATE, frame_size=1024)
        for piece in [*resampler.resample(frame), *resampler.resample(None)]:
            container.mux(stream.encode(piece))
        container.mux(stream.encode(None))
