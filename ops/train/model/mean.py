"""The mean of two runs' weights: `python -m ops.train.model.mean FIRST SECOND OUT`, files of safetensors.

Where one was trained on from the other, the mean is often better than either (Izmailov et al. 2018,
"Averaging weights leads to wider optima and better generalization").
"""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
from safetensors.numpy import load, save


def mean(first: bytes, second: bytes) -> bytes:
    """Two files' contents to one's, each tensor in its type. Raises ValueError where shapes differ."""
    ours, theirs = load(first), load(second)
    if {k: v.shape for k, v in ours.items()} != {k: v.shape for k, v in theirs.items()}:
        raise ValueError("the two files don't hold the same tensors")
    return save(
        {
            name: ((value.astype(np.float32) + theirs[name].astype(np.float32)) / 2).astype(value.dtype)
            for name, value in ours.items()
        }
    )


def main() -> None:
    first, second, out = map(Path, sys.argv[1:])
    out.write_bytes(mean(first.read_bytes(), second.read_bytes()))


if __name__ == "__main__":
    main()
