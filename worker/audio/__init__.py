"""Recordings as 16 kHz float32 blocks: any container, any rate, any length, in flat memory.

`open_audio` is the one entry point of this package; what is behind it (libsndfile, FFmpeg's libraries through
PyAV, soxr) is chosen by the file's content, never by its name. No program is started. Knows nothing of
chunks or jobs.
"""

from worker.audio.resample import SAMPLE_RATE
from worker.audio.stream import AudioStream, Channels, open_audio

__all__ = ["SAMPLE_RATE", "AudioStream", "Channels", "open_audio"]
