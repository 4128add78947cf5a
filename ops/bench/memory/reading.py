"""Peak memory of reading a long recording against a short one: the two must be the same.

    python -m ops.bench.memory.reading [--hours 10] [--minutes 10] [--formats wav,flac,...]

For each format a short and a long file are made (a minute of noise, encoded once and repeated packet by
packet), and each is read and planned into chunks by a fresh process, whose peak resident memory the operating
system tells. The files are deleted. Knows nothing of models: what is measured is decoding, resampling and the
chunk plan.
"""

import argparse
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import av
import numpy as np
import soundfile

from worker.audio import open_audio
from worker.segmentation.chunker import plan_channels

MINUTE = 60
# Container, codec, sample rate; capitals are libsndfile's names, the others FFmpeg's.
FORMATS: dict[str, tuple[str, str, int]] = {
    "wav": ("WAV", "PCM_16", 8_000),
    "flac": ("FLAC", "PCM_16", 8_000),
    "mp3": ("mp3", "libmp3lame", 16_000),
    "ogg": ("OGG", "VORBIS", 8_000),
    "m4a": ("mp4", "aac", 16_000),
    "m4a-48k": ("mp4", "aac", 48_000),
    "webm": ("webm", "libopus", 48_000),
}


def noise(rate: int) -> np.ndarray:
    """A minute of sound that swells like speech, so that the chunk plan has work to do."""
    count = MINUTE * rate
    swell = 0.6 - 0.4 * np.cos(2 * np.pi * 4 * np.arange(count) / rate)
    return (0.1 * swell * np.random.default_rng(0).standard_normal(count)).astype(np.float32)


def make(path: Path, kind: str, seconds: int) -> None:
    container, codec, rate = FORMATS[kind]
    if container.isupper():
        minute = noise(rate)
        with soundfile.SoundFile(path, "w", rate, 1, codec, format=container) as out:
            for second in range(seconds):
                at = second % MINUTE * rate
                out.write(minute[at : at + rate])
        return
    # A clock in milliseconds would round AAC's packets and give the copy an uneven clock.
    with tempfile.NamedTemporaryFile(suffix=".m4a" if codec == "aac" else ".mka") as once:
        encode(Path(once.name), codec, rate)
        repeat(Path(once.name), path, container, seconds)


def encode(path: Path, codec: str, rate: int) -> None:
    with av.open(str(path), "w", format="ipod" if codec == "aac" else "matroska") as out:
        stream: Any = out.add_stream(codec, rate=rate, layout="mono")
        kind = "flt" if codec == "libopus" else "fltp"
        stream.codec_context.format = kind
        samples = noise(rate)
        size = stream.codec_context.frame_size or 1024
        for at in range(0, len(samples), size):
            piece = samples[at : at + size][None, :]
            frame = av.AudioFrame.from_ndarray(piece, format=kind, layout="mono")
            frame.sample_rate, frame.pts = rate, at
            out.mux(stream.encode(frame))
        out.mux(stream.encode(None))


def repeat(source: Path, target: Path, container: str, seconds: int) -> None:
    with av.open(str(source)) as given:
        stream: Any = given.streams.audio[0]
        packets = [(bytes(p), p.duration) for p in given.demux(stream) if p.size and p.duration]
        with av.open(str(target), "w", format=container) as out:
            copy = out.add_stream_from_template(stream)
            at, index = 0, 0
            while at * float(stream.time_base) < seconds:
                data, duration = packets[index % len(packets)]
                packet = av.Packet(data)
                packet.pts = packet.dts = at
                packet.duration, packet.time_base, packet.stream = duration, stream.time_base, copy
                out.mux(packet)
                at, index = at + duration, index + 1


def read(path: Path) -> None:
    """In the child: read all, plan all, and print audio seconds and peak memory in MiB."""
    with open_audio(path) as stream:
        for _chunk in plan_channels(stream.blocks(), stream.channels):
            pass
        print(f"{stream.samples_read / stream.sample_rate:.1f} {peak_mebibytes():.1f}")


def peak_mebibytes() -> float:
    status = Path("/proc/self/status")
    if status.exists():
        # getrusage's figure would include what the parent held before this process was its own.
        (line,) = [line for line in status.read_text().splitlines() if line.startswith("VmHWM:")]
        return int(line.split()[1]) / 1024
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / (1 << 20)


def measure(path: Path) -> tuple[float, float, float]:
    """Audio seconds, peak MiB and wall seconds of a fresh process that reads `path`."""
    begun = time.monotonic()
    command = [sys.executable, "-m", "ops.bench.memory.reading", "--read", str(path)]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    seconds, mebibytes = map(float, done.stdout.split())
    return seconds, mebibytes, time.monotonic() - begun


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--hours", type=float, default=10.0)
    parser.add_argument("--minutes", type=float, default=10.0)
    parser.add_argument("--formats", default=",".join(FORMATS))
    parser.add_argument("--read", type=Path, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.read:
        read(options.read)
        return
    lengths = (round(options.minutes * 60), round(options.hours * 3600))
    print(
        f"{'format':8} {'short s':>9} {'MiB':>7} {'long s':>9} {'MiB':>7} {'more MiB':>9} {'read in s':>9}",
        flush=True,
    )
    for kind in options.formats.split(","):
        with tempfile.TemporaryDirectory() as folder:
            results = []
            for seconds in lengths:
                path = Path(folder) / f"{kind}-{seconds}"
                make(path, kind, seconds)
                results.append(measure(path))
                path.unlink()
        (short, small, _), (long, large, wall) = results
        print(
            f"{kind:8} {short:9.0f} {small:7.1f} {long:9.0f} {large:7.1f} {large - small:9.1f} {wall:9.1f}",
            flush=True,
        )


if __name__ == "__main__":
    main()
