"""Recordings that are broken or odd, made on the spot; for tests that feed Spool what archives hold.

`make_bad_files` writes them all; `EXPECTED` says which error each must give, None where it must be read.
"""

import struct
from pathlib import Path
from typing import Any

import av
import numpy as np
import soundfile
from numpy.typing import NDArray

from spool.errors import AudioEmpty, AudioError, AudioNotFinite, AudioTruncated, AudioUnreadable

Samples = NDArray[np.float32]

EXPECTED: dict[str, type[AudioError] | None] = {
    "empty.wav": AudioEmpty,
    "header_only.wav": AudioEmpty,
    "text.wav": AudioUnreadable,
    "random.mp3": AudioUnreadable,
    "zero_hz.wav": AudioUnreadable,
    "playlist.m3u8": AudioUnreadable,
    "truncated.m4a": AudioTruncated,
    "damaged.flac": AudioUnreadable,
    "nan.wav": AudioNotFinite,
    "infinite.wav": AudioNotFinite,
    "promises_more.wav": None,
    "promises_less.wav": None,
    "promises_nothing.wav": None,
    "streamed.wav": None,
    "nine_channels.wav": None,
    "mulaw_8k.wav": None,
    "pcm24_96k.wav": None,
    "zeros.wav": None,
    "ten_samples.wav": None,
}
CUT_OFF = ("truncated.flac", "truncated.mp3", "truncated.webm")
"""Cut in half; what is there is read."""


def babble(seconds: float, rate: int = 16_000, seed: int = 0) -> Samples:
    """Noise that swells and falls like speech: not silence, not steady, the same on every call."""
    count = round(seconds * rate)
    noise = np.random.default_rng(seed).standard_normal(count)
    swell = 0.55 - 0.45 * np.cos(2 * np.pi * 4.0 * np.arange(count) / rate)
    return (0.1 * noise * swell).astype(np.float32)


def wav_bytes(data: bytes, *, promised: int | None = None, rate: int = 16_000, channels: int = 1) -> bytes:
    """A 16-bit WAV around `data` whose header may lie."""
    size = len(data) if promised is None else promised
    riff = min(36 + size, 0xFFFFFFFF)
    fmt = struct.pack("<IHHIIHH", 16, 1, channels, rate, rate * 2 * channels, 2 * channels, 16)
    return b"RIFF" + struct.pack("<I", riff) + b"WAVEfmt " + fmt + b"data" + struct.pack("<I", size) + data


def pcm16(samples: Samples) -> bytes:
    return (np.clip(samples, -1, 1) * 32767).astype("<i2").tobytes()


def write_av(path: Path, container: str, codec: str, samples: Samples, rate: int, **options: str) -> Path:
    """`samples` (`[n]` or `[n, 2]`) encoded through PyAV."""
    data = samples.reshape(len(samples), -1)
    layout = "mono" if data.shape[1] == 1 else "stereo"
    with av.open(str(path), "w", format=container, options=options) as out:
        stream: Any = out.add_stream(codec, rate=rate, layout=layout)
        if codec == "wmav2":
            stream.bit_rate = 64_000  # its default suits no rate of ours
        kind = stream.codec_context.format.name
        size = stream.codec_context.frame_size or 1024
        for at in range(0, len(data), size):
            piece = np.ascontiguousarray(data[at : at + size].T)
            frame = av.AudioFrame.from_ndarray(_as_kind(piece, kind), format=kind, layout=layout)
            frame.sample_rate = rate
            frame.pts = at
            out.mux(stream.encode(frame))
        out.mux(stream.encode(None))
    return path


def _as_kind(piece: Samples, kind: str) -> NDArray[Any]:
    """`[channels, n]` float32 as FFmpeg's sample format `kind` wants it."""
    base = kind.removesuffix("p")
    shaped = piece if kind.endswith("p") else np.ascontiguousarray(piece.T).reshape(1, -1)
    if base == "flt":
        return shaped
    if base == "u8":
        return (shaped * 127 + 128).astype(np.uint8)
    kinds = {"s16": (32767.0, np.int16), "s32": (2147483647.0, np.int32)}
    scale, dtype = kinds[base]
    return (shaped.astype(np.float64) * scale).astype(dtype)


def make_bad_files(folder: Path, samples: Samples | None = None) -> dict[str, Path]:
    """Every file of `EXPECTED`, made from `samples` (16 kHz, default three seconds of babble), by name."""
    sound = babble(3.0) if samples is None else samples
    data = pcm16(sound)
    files = {
        "empty.wav": b"",
        "header_only.wav": wav_bytes(b""),
        "text.wav": b"This is a letter, and no recording at all.\n" * 200,
        "random.mp3": np.random.default_rng(1).bytes(20_000),
        "zero_hz.wav": wav_bytes(data, rate=0),
        "playlist.m3u8": b"#EXTM3U\n#EXT-X-TARGETDURATION:10\n#EXTINF:9,\ntruncated.flac\n#EXT-X-ENDLIST\n",
        "promises_more.wav": wav_bytes(data, promised=len(data) * 2),
        "promises_less.wav": wav_bytes(data, promised=len(data) // 4),
        "promises_nothing.wav": wav_bytes(data, promised=0),
        "streamed.wav": wav_bytes(data, promised=0xFFFFFFFF),
        "zeros.wav": wav_bytes(bytes(len(data))),
        "ten_samples.wav": wav_bytes(data[:20]),
    }
    paths = {name: folder / name for name in (*EXPECTED, *CUT_OFF)}
    for name, content in files.items():
        paths[name].write_bytes(content)
    _write_encoded(paths, sound)
    return paths


def _write_encoded(paths: dict[str, Path], sound: Samples) -> None:
    soundfile.write(paths["truncated.flac"], sound, 16_000)
    _cut(paths["truncated.flac"])
    soundfile.write(paths["damaged.flac"], sound, 16_000)
    content = bytearray(paths["damaged.flac"].read_bytes())
    content[len(content) // 3 : len(content) // 2] = bytes(len(content) // 2 - len(content) // 3)
    paths["damaged.flac"].write_bytes(content)
    soundfile.write(paths["truncated.mp3"], sound, 16_000)
    _cut(paths["truncated.mp3"])
    _cut(write_av(paths["truncated.m4a"], "mp4", "aac", sound, 16_000))
    upsampled = np.repeat(sound, 3)
    _cut(write_av(paths["truncated.webm"], "webm", "libopus", upsampled, 48_000))
    for name, value in (("nan.wav", np.nan), ("infinite.wav", -np.inf)):
        broken = sound.copy()
        broken[1234] = value
        soundfile.write(paths[name], broken, 16_000, subtype="FLOAT")
    nine = np.tile(sound[:, None], (1, 9))
    soundfile.write(paths["nine_channels.wav"], nine, 16_000)
    soundfile.write(paths["mulaw_8k.wav"], sound[::2], 8_000, subtype="ULAW")
    soundfile.write(paths["pcm24_96k.wav"], np.repeat(sound, 6), 96_000, subtype="PCM_24")


def _cut(path: Path) -> None:
    """Lose the second half of a file, as a broken copy does."""
    content = path.read_bytes()
    path.write_bytes(content[: len(content) // 2])
