"""NeMo for `peers.py`, in its own environment: its modules one after another, without its data loader."""

import copy
import logging
import os
import warnings

os.environ.setdefault("HF_HUB_OFFLINE", "1")
os.environ.setdefault("NEMO_LOG_LEVEL", "ERROR")
os.environ.setdefault("NUMBA_DISABLE_CUDA", "1")
warnings.filterwarnings("ignore")
logging.getLogger("nv_one_logger").setLevel(logging.CRITICAL)

import nemo.collections.asr as nemo_asr  # noqa: E402 - NeMo reads its environment when it is imported
import numpy as np  # noqa: E402
import torch  # noqa: E402
from nemo.utils import logging as nemo_logging  # noqa: E402
from omegaconf import OmegaConf  # noqa: E402

from ops.bench.peers.child import Made, Samples, answer_features, serve  # noqa: E402


class Nemo:
    """See `child.Engine`. Greedy is `greedy_batch` (label looping), a beam is `malsd_batch`."""

    def __init__(self, path: str) -> None:
        torch.set_num_threads(int(os.environ["OMP_NUM_THREADS"]))
        nemo_logging.setLevel(logging.ERROR)
        self.model = nemo_asr.models.ASRModel.restore_from(path, map_location="cpu").eval()
        self.model.preprocessor.featurizer.dither = 0.0
        self.model.preprocessor.featurizer.pad_to = 0
        self._strategy: int | None = -1

    @torch.inference_mode()
    def features(self, samples: list[Samples]) -> Made:
        lengths = torch.tensor([len(each) for each in samples])
        signal = np.zeros((len(samples), int(lengths.max())), np.float32)
        for row, each in zip(signal, samples, strict=True):
            row[: len(each)] = each
        return self.model.preprocessor(input_signal=torch.from_numpy(signal), length=lengths)

    @torch.inference_mode()
    def encode(self, features: Made) -> Made:
        mels, lengths = features
        return self.model.encoder(audio_signal=mels, length=lengths)

    @torch.inference_mode()
    def search(self, encoded: Made, beam: int | None) -> list[list[int]]:
        self._choose(beam)
        found = self.model.decoding.rnnt_decoder_predictions_tensor(*encoded, return_hypotheses=True)
        best = [row[0] if isinstance(row, list) else row for row in found]
        return [[int(token) for token in hypothesis.y_sequence] for hypothesis in best]

    def given(self, features: Samples) -> Made:
        return torch.from_numpy(features.T)[None], torch.tensor([len(features)])

    def _choose(self, beam: int | None) -> None:
        if beam == self._strategy:
            return
        config = copy.deepcopy(self.model.cfg.decoding)
        OmegaConf.set_struct(config, False)
        if beam is None:
            config.strategy, config.greedy = "greedy_batch", OmegaConf.create({"max_symbols": 10})
        else:
            options = {"return_best_hypothesis": True, "score_norm": True, "allow_cuda_graphs": False}
            config.strategy = "malsd_batch"
            config.beam = OmegaConf.create({"beam_size": beam, "max_symbols": 10} | options)
        self.model.change_decoding_strategy(config, verbose=False)
        self._strategy = beam


if __name__ == "__main__":
    serve(Nemo, {"features": answer_features})
