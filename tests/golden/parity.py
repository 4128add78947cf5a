"""Prints the parity table of docs/numerics.md: this engine against NeMo's stored numbers.

    python -m tests.golden.parity [FOLDER DUMP.npz]

Without arguments, every model of this folder; with them, a model and what `dump_folder.py` wrote for it.
All utterances go through the engine as one padded batch; NeMo took them one at a time.
"""

import os
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Literal

from worker.machine import preload_blas

preload_blas()
os.environ.setdefault("MLX_ENABLE_TF32", "0")  # on an NVIDIA GPU: all 23 bits of a float32 in products

import mlx.core as mx  # noqa: E402 -- the BLAS is bound when MLX is loaded
import numpy as np  # noqa: E402

from ops.testbed.nemo_model import load_nemo  # noqa: E402
from spool.domain import Hypothesis  # noqa: E402
from worker.decode.search import search  # noqa: E402
from worker.models import FeatureExtractor, SearchOptions  # noqa: E402

HERE = Path(__file__).parent
NEAR_GUARD = 2.0**-20  # of mel power; the guard added to it is 2^-24
COLUMNS = (
    "model",
    "features",
    "near the guard",
    "NeMo's own error there",
    "encoder, relative",
    "CTC log-probabilities",
    "greedy",
    "n-best lists",
    "scores",
)
MODELS = {
    "tdt.nemo": "tdt",
    "rnnt.nemo": "rnnt",
    "ctc.nemo": "ctc",
    "hybrid.nemo": "hybrid",
    "causal.nemo": "causal",
}
Golden = Mapping[str, np.ndarray]


def widest(found: np.ndarray, wanted: np.ndarray, lengths: np.ndarray) -> float:
    rows = zip(found, wanted, lengths, strict=False)
    return max(float(np.abs(a[:length] - b[:length]).max()) for a, b, length in rows)


def same(hypothesis: Hypothesis, golden: Golden, key: str, b: int, k: int) -> bool:
    length = int(golden[f"{key}.len"][b, k])
    wanted = [tuple(golden[f"{key}.{part}"][b, k, :length].tolist()) for part in ("tok", "time", "dur")]
    durations = hypothesis.durations if all(d >= 0 for d in wanted[2]) else wanted[2]
    return [hypothesis.tokens, hypothesis.times, durations] == wanted


def feature_gaps(front_end: FeatureExtractor, audio: list[np.ndarray], golden: Golden) -> list[str]:
    """The widest gap to NeMo where a band has power, where it lies near the logarithm's guard, and there
    NeMo's own gap to the same computed in 64 bit."""
    gaps = np.zeros(3)
    for b, length in enumerate(golden["features_len"]):
        exact, power = exact_features(front_end, audio[b])
        theirs = golden["features"][b, :length]
        ours = np.abs(np.array(front_end(audio[b])) - theirs)
        near = power < NEAR_GUARD
        widest_here = [
            ours[~near].max(),
            ours[near].max(initial=0),
            np.abs(exact - theirs)[near].max(initial=0),
        ]
        gaps = np.maximum(gaps, widest_here)
    return [f"{gap:.1e}" for gap in gaps]


def exact_features(front_end: FeatureExtractor, samples: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Normalised log-mel and mel power, both [T, mels], in 64 bit throughout."""
    config = front_end.config
    x, size, hop = samples.astype(np.float64), config.fft_length, config.hop_length
    assert config.preemph is not None
    x[1:] -= config.preemph * samples[:-1].astype(np.float64)
    windows = np.lib.stride_tricks.sliding_window_view(np.pad(x, size // 2), size)[::hop]
    windows = windows[: len(samples) // hop] * np.array(front_end.window, np.float64)
    power = np.abs(np.fft.rfft(windows)) ** 2 @ np.array(front_end.filters.matrix, np.float64)
    mel = np.log(power + config.log_zero_guard_value)
    return (mel - mel.mean(0)) / (mel.std(0, ddof=1) + 1e-5), power


def row(name: str, path: Path, golden: Golden, audio: list[np.ndarray], features: Golden) -> str:
    model = load_nemo(path, mx.float32)
    encoded = model.encode(audio)
    assert encoded.lengths.tolist() == golden["encoder_len"].tolist()
    gap = widest(np.array(encoded.frames), golden["encoder"], encoded.lengths)
    cells = [
        *feature_gaps(model.front_end, audio, features),
        f"{gap / np.abs(golden['encoder']).max():.1e}",
    ]
    ctc = "-"
    if model.ctc is not None:
        found = np.array(model.ctc.log_probs(encoded.frames))
        ctc = f"{widest(found, golden['ctc_log_probs'], encoded.lengths):.1e}"
    cells.append(ctc)
    if model.transducer is None:
        return f"| {name} | {' | '.join(cells)} | - | - | - |"
    head: Literal["tdt", "rnnt"] = "tdt" if "tdt" in model.heads else "rnnt"
    greedy = search(model, encoded, SearchOptions(head=head))
    hits = sum(same(rows[0], golden, "greedy", b, 0) for b, rows in enumerate(greedy))
    cells.append(f"{hits} of {len(greedy)}")
    lists = equal = 0
    gap = 0.0
    for beam in (1, 2, 4, 8):
        key = f"malsd.k{beam}"
        for b, rows in enumerate(
            search(model, encoded, SearchOptions(decoder="beam", beam=beam, nbest=beam, head=head))
        ):
            lists += 1
            if len(rows) == golden[f"{key}.n"][b] and all(
                same(h, golden, key, b, k) for k, h in enumerate(rows)
            ):
                equal += 1
                scores = golden[f"{key}.score"][b, : len(rows)]
                gap = max(gap, *(abs(h.score - score) for h, score in zip(rows, scores, strict=True)))
    return f"| {name} | {' | '.join([*cells, f'{equal} of {lists}', f'{gap:.1e}'])} |"


def load(path: Path) -> Golden:
    with np.load(path) as file:
        return dict(file)


def recordings(golden: Golden) -> list[np.ndarray]:
    rows = zip(golden["audio"], golden["lengths"], strict=True)
    return [samples[:length].astype(np.float32) / 32768.0 for samples, length in rows]


def main() -> None:
    print(f"| {' | '.join(COLUMNS)} |")
    print("|---" * len(COLUMNS) + "|")
    if len(sys.argv) == 3:
        golden = load(Path(sys.argv[2]))
        print(row(Path(sys.argv[1]).name, Path(sys.argv[1]), golden, recordings(golden), golden))
        return
    audio = recordings(load(HERE / "audio.npz"))
    for file, name in MODELS.items():
        features = load(HERE / ("features_128.npz" if name == "tdt" else "features_80.npz"))
        print(row(name, HERE / file, load(HERE / f"{name}.npz"), audio, features))


if __name__ == "__main__":
    main()
