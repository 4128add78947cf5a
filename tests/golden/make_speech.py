"""Writes speech.npz: what the speech detector and the default diarizer must say of `audio.npz`.

    python make_speech.py ORACLE

ORACLE holds `silero_vad_16k_op15.onnx` (wheel silero-vad 6.2.3), and the restatement in numpy and scipy
of Resemblyzer's encoder and of the diarizer (`ref_ge2e.py`, `ref_silero.py`, `ref_diarize.py`) with its
`silero_vad_6.safetensors` and `ge2e.safetensors`. Needs numpy, scipy and onnxruntime; nothing of Spool.
"""

import sys
from pathlib import Path

import numpy as np
import onnxruntime

FOLDER = Path(__file__).parent
ORDER = [0, 2, 3, 4, 0, 3, 2, 4, 0, 2]


def conversation() -> np.ndarray:
    """Four people of audio.npz in turn, 0.4 s between them, over faint noise; float32 at 16 kHz."""
    stored = np.load(FOLDER / "audio.npz")
    parts = []
    for index in ORDER:
        parts += [stored["audio"][index, : stored["lengths"][index]] / np.float32(32768), np.zeros(6400)]
    samples = np.concatenate([*parts, np.zeros(80_000)])
    return (samples + np.random.default_rng(7).normal(0, 1e-3, len(samples))).astype(np.float32)


def silero(path: Path, samples: np.ndarray) -> np.ndarray:
    """One probability every 512 samples, by ONNX Runtime, window after window."""
    session = onnxruntime.InferenceSession(str(path), providers=["CPUExecutionProvider"])
    count = -(-len(samples) // 512)
    padded = np.pad(samples, (64, count * 512 - len(samples)))
    state, found = np.zeros((2, 1, 128), np.float32), []
    for at in range(0, count * 512, 512):
        feed = {"input": padded[None, at : at + 576], "state": state, "sr": np.array(16000, np.int64)}
        probability, state = session.run(None, feed)
        found.append(probability[0, 0])
    return np.array(found, np.float32)


def main(oracle: Path) -> None:
    sys.path.insert(0, str(oracle))
    import ref_diarize as ref

    samples = conversation()
    probabilities = silero(oracle / "silero_vad_16k_op15.onnx", samples)
    voice = ref.Voice(oracle / "ge2e.safetensors")
    stretches = ref.speech(probabilities, len(samples), threshold=0.5, min_silence=0.3, pad=0.06)
    spans, prints = ref.windows(samples, stretches, voice)
    out = {
        "probabilities": probabilities,
        "stretches": np.array(stretches, np.int64),
        "spans": np.array(spans),
        "prints": prints,
    }
    for name, options in {"segments": {}, "segments_3": {"fewest": 3, "most": 3}}.items():
        labels = ref.cluster(prints, **options)
        out[name] = np.array(ref.timeline(spans, prints, labels, stretches))
    np.savez_compressed(FOLDER / "speech.npz", **out)


if __name__ == "__main__":
    main(Path(sys.argv[1]))
