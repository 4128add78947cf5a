"""faster-whisper as its documentation uses it, in its own environment:

python -m ops.bench.peers.whisper.command_faster MODEL float32|int8 BATCH FILE…
"""

import json
import os
import sys

from faster_whisper import BatchedInferencePipeline, WhisperModel


def main() -> None:
    path, kind, batch, *files = sys.argv[1:]
    threads = int(os.environ["OMP_NUM_THREADS"])
    model = WhisperModel(path, device="cpu", compute_type=kind, cpu_threads=threads)
    pipeline = BatchedInferencePipeline(model)
    for file in files:
        if batch == "1":
            segments, _ = model.transcribe(file, language="en", word_timestamps=True)
        else:
            segments, _ = pipeline.transcribe(
                file, language="en", word_timestamps=True, batch_size=int(batch)
            )
        print(json.dumps({"file": file, "text": " ".join(segment.text.strip() for segment in segments)}))


if __name__ == "__main__":
    main()
