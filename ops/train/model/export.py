"""The trained weights as a model folder of the Hugging Face layout.

Writes config.json, model.safetensors (16 bit) and tokenizer.model. The configuration is NeMo's for
EncDecHybridRNNTCTCBPEModel, so that one reader serves this model and the published ones.
"""

from __future__ import annotations

import hashlib
import json
import shutil
from pathlib import Path
from typing import Any

import sentencepiece
from safetensors.torch import save_file
from torch import Tensor

from ops.train.model.network import Shape
from ops.train.model.weights import exported

LARGEST = 10_000_000


MODULES = "nemo.collections.asr.modules"
PREPROCESSOR = {
    "_target_": f"{MODULES}.AudioToMelSpectrogramPreprocessor",
    "sample_rate": 16000,
    "normalize": "per_feature",
    "window_size": 0.025,
    "window_stride": 0.01,
    "window": "hann",
    "features": 80,
    "n_fft": 512,
    "frame_splicing": 1,
    "dither": 0.0,
    "pad_to": 0,
}


def _encoder(shape: Shape) -> dict[str, Any]:
    return {
        "_target_": f"{MODULES}.ConformerEncoder",
        "feat_in": shape.mels,
        "feat_out": -1,
        "n_layers": shape.layers,
        "d_model": shape.width,
        "use_bias": True,
        "subsampling": "dw_striding",
        "subsampling_factor": 8,
        "subsampling_conv_channels": shape.channels,
        "causal_downsampling": False,
        "ff_expansion_factor": shape.expansion,
        "self_attention_model": "rel_pos",
        "n_heads": shape.heads,
        "att_context_size": [-1, -1],
        "xscaling": False,
        "untie_biases": True,
        "pos_emb_max_len": 5000,
        "conv_kernel_size": shape.kernel,
        "conv_norm_type": "batch_norm",
        "dropout": shape.dropout,
        "dropout_pre_encoder": shape.dropout,
        "dropout_emb": 0.0,
        "dropout_att": shape.dropout,
    }


def _decoder(shape: Shape) -> dict[str, Any]:
    return {
        "_target_": f"{MODULES}.RNNTDecoder",
        "normalization_mode": None,
        "random_state_sampling": False,
        "blank_as_pad": True,
        "vocab_size": shape.vocabulary,
        "prednet": {"pred_hidden": shape.prediction, "pred_rnn_layers": 1, "dropout": 2 * shape.dropout},
    }


def _joint(shape: Shape, pieces: list[str]) -> dict[str, Any]:
    network = {
        "joint_hidden": shape.joint,
        "activation": "relu",
        "dropout": 2 * shape.dropout,
        "encoder_hidden": shape.width,
        "pred_hidden": shape.prediction,
    }
    return {
        "_target_": f"{MODULES}.RNNTJoint",
        "log_softmax": None,
        "num_classes": shape.vocabulary,
        "num_extra_outputs": len(shape.durations),
        "vocabulary": pieces,
        "jointnet": network,
    }


def configuration(shape: Shape, pieces: list[str]) -> dict[str, Any]:
    """NeMo's configuration of the network, as a tree fit for JSON."""
    durations = list(shape.durations)
    ctc = {
        "_target_": f"{MODULES}.ConvASRDecoder",
        "feat_in": shape.width,
        "num_classes": shape.vocabulary,
        "vocabulary": pieces,
    }
    return {
        "target": "nemo.collections.asr.models.hybrid_rnnt_ctc_bpe_models.EncDecHybridRNNTCTCBPEModel",
        "sample_rate": 16000,
        "model_defaults": {"tdt_durations": durations, "num_tdt_durations": len(durations)},
        "preprocessor": PREPROCESSOR,
        "encoder": _encoder(shape),
        "decoder": _decoder(shape),
        "joint": _joint(shape, pieces),
        "decoding": {"strategy": "greedy_batch", "model_type": "tdt", "durations": durations},
        "aux_ctc": {"ctc_loss_weight": 0.3, "use_cer": False, "decoder": ctc},
        "tokenizer": {"type": "bpe", "dir": "."},
    }


def export(state: dict[str, Tensor], shape: Shape, tokenizer: Path, folder: Path) -> str:
    """Writes the folder and gives the SHA-256 of the weights; raises ValueError above ten megabytes."""
    folder.mkdir(parents=True, exist_ok=True)
    processor = sentencepiece.SentencePieceProcessor(model_file=str(tokenizer))
    pieces = [processor.id_to_piece(number) for number in range(processor.vocab_size())]
    text = json.dumps(configuration(shape, pieces), indent=2, ensure_ascii=False)
    (folder / "config.json").write_text(text + "\n")
    weights = folder / "model.safetensors"
    save_file(exported(state), weights, metadata={"format": "pt"})
    weights.chmod(0o644)  # save_file keeps it to its owner
    if weights.stat().st_size > LARGEST:
        raise ValueError(f"{weights} has {weights.stat().st_size} bytes, the repository takes {LARGEST}")
    if tokenizer.resolve() != (folder / "tokenizer.model").resolve():
        shutil.copyfile(tokenizer, folder / "tokenizer.model")
    return hashlib.sha256(weights.read_bytes()).hexdigest()
