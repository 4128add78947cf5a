"""parakeet-mlx's `transcribe`, in its own environment, with the OpenBLAS that Spool would load:

python -m ops.bench.peers.command_parakeet_mlx MODEL FILE…
"""

from worker.machine.blas import preload_blas

report = preload_blas()
assert report.fast, report

import json  # noqa: E402 - the BLAS is loaded before MLX
import sys  # noqa: E402

import mlx.core as mx  # noqa: E402
from parakeet_mlx import from_pretrained  # noqa: E402


def main() -> None:
    path, *files = sys.argv[1:]
    model = from_pretrained(path, dtype=mx.float32)
    for file in files:
        print(json.dumps({"file": file, "text": model.transcribe(file, dtype=mx.float32).text}))


if __name__ == "__main__":
    main()
