"""How much memory a feature frame of a batch takes, for `worker/engine/memory_budget.py`: the
encoder's peaks over padded batches of several sizes, and the slope through them.

    python -m ops.bench.memory.frame [--model large|small|demo] [--dtype float32|bfloat16] [--seconds
    30]

Random weights over noise, on the path that a GPU takes. A float32 frame takes twice what a bfloat16 one does.
"""

import argparse

import numpy as np

from worker.machine.blas import preload_blas

preload_blas()

import mlx.core as mx  # noqa: E402 - the BLAS is loaded before MLX

from kernels.runtime import device as encoder_module  # noqa: E402
from ops.bench.engine.random_model import LARGE, SMALL, random_encoder  # noqa: E402
from ops.bench.memory.batches import DEMO  # noqa: E402

MODELS = {"large": LARGE.encoder, "small": SMALL.encoder, "demo-tdt": DEMO}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--model", choices=MODELS, default="large")
    parser.add_argument("--dtype", choices=("float32", "bfloat16"), default="float32")
    parser.add_argument("--seconds", type=float, default=30.0, help="length of each utterance")
    parser.add_argument("--utterances", type=int, nargs="+", default=[1, 2, 4])
    chosen = parser.parse_args()
    encoder_module.on_gpu = lambda: True
    encoder = random_encoder(MODELS[chosen.model])
    dtype = getattr(mx, chosen.dtype)
    encoder.set_dtype(dtype)
    mx.eval(encoder.parameters())
    frames, peaks = [], []
    for count in (chosen.utterances[0], *chosen.utterances):  # the first makes what stays
        lengths = np.full(count, int(chosen.seconds * 100), np.int32)
        features = mx.random.normal((count, int(lengths[0]), MODELS[chosen.model].feat_in)).astype(dtype)
        mx.eval(features)
        mx.clear_cache()
        before = mx.get_active_memory()
        mx.reset_peak_memory()
        mx.eval(encoder(features, lengths)[0])
        frames.append(int(lengths.sum()))
        peaks.append(mx.get_peak_memory() - before)
        print(
            f"{count:3} x {chosen.seconds:.0f} s: {frames[-1]:6} frames, peak {peaks[-1] / 1e6:8.1f} MB",
            flush=True,
        )
    slope, base = np.polyfit(frames[1:], peaks[1:], 1)
    print(f"{chosen.model}, {chosen.dtype}: {slope / 1e3:.1f} kB a frame, {base / 1e6:+.1f} MB besides")


if __name__ == "__main__":
    main()
