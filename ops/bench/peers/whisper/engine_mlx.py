"""mlx-whisper for `compare.py`, in its own environment, with the OpenBLAS that Spool would load. It has
no beam."""

from worker.machine.blas import preload_blas

report = preload_blas()
assert report.fast, report

import mlx.core as mx  # noqa: E402 - the BLAS is loaded before MLX
from mlx_whisper.audio import N_FRAMES, log_mel_spectrogram, pad_or_trim  # noqa: E402
from mlx_whisper.decoding import DecodingOptions, decode  # noqa: E402
from mlx_whisper.load_models import load_model  # noqa: E402

from ops.bench.peers.child import Made, Samples, serve  # noqa: E402


class MlxWhisper:
    """See `child.Engine`. The model is the `mlx` folder beside that of the others."""

    def __init__(self, path: str) -> None:
        mx.set_default_device(mx.cpu)
        self.model = load_model(path, mx.float32)

    def features(self, samples: list[Samples]) -> Made:
        mels = [log_mel_spectrogram(each, n_mels=self.model.dims.n_mels) for each in samples]
        stacked = mx.stack([pad_or_trim(mel, N_FRAMES, axis=-2) for mel in mels]).astype(mx.float32)
        mx.eval(stacked)
        return stacked

    def encode(self, features: Made) -> Made:
        frames = self.model.encoder(features)
        mx.eval(frames)
        return frames

    def search(self, encoded: Made, beam: int | None) -> list[list[int]]:
        assert beam is None
        options = DecodingOptions(language="en", without_timestamps=True, fp16=False)
        return [list(answer.tokens) for answer in decode(self.model, encoded, options)]


if __name__ == "__main__":
    serve(MlxWhisper)
