"""mlx-whisper's `transcribe`, in its own environment, with the OpenBLAS that Spool would load:

python -m ops.bench.peers.whisper.command_mlx MODEL FILE…
"""

from worker.machine.blas import preload_blas

report = preload_blas()
assert report.fast, report

import json  # noqa: E402 - the BLAS is loaded before MLX
import sys  # noqa: E402

import mlx.core as mx  # noqa: E402
import mlx_whisper  # noqa: E402


def main() -> None:
    model, *files = sys.argv[1:]
    mx.set_default_device(mx.cpu)
    for file in files:
        answer = mlx_whisper.transcribe(
            file, path_or_hf_repo=model, language="en", word_timestamps=True, fp16=False
        )
        print(json.dumps({"file": file, "text": answer["text"]}))


if __name__ == "__main__":
    main()
