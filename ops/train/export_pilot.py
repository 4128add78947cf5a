"""Writes a demo model's folder in the layout that the engine loads, from weights under the pilot's names.

    python -m ops.train.export_pilot PILOT.safetensors BPE.model models/demo

The folder holds `config.json` (NeMo's model configuration as JSON), `model.safetensors` (16 bit, NeMo's names and
layouts) and `tokenizer.model`. Knows the shapes of a checkpoint from its tensors; knows no training.
"""

import json
import shutil
import sys
from pathlib import Path

import mlx.core as mx
import sentencepiece

DURATIONS = [0, 1, 2, 3, 4]
RENAMED = {
    "ctc.": "ctc_decoder.decoder_layers.0.",
    "pred.embed.": "decoder.prediction.embed.",
    "pred.lstm.": "decoder.prediction.dec_rnn.lstm.",
    "jenc.": "joint.enc.",
    "jpred.": "joint.pred.",
    "jout.": "joint.joint_net.2.",
    "encoder.": "encoder.",
}


def renamed(tensors: dict[str, mx.array]) -> dict[str, mx.array]:
    """NeMo's names; training's own helpers (the phone head, batch counters) are left out."""
    out = {}
    for name, tensor in tensors.items():
        prefix = next((prefix for prefix in RENAMED if name.startswith(prefix)), None)
        if prefix and not name.endswith("num_batches_tracked"):
            out[RENAMED[prefix] + name[len(prefix) :]] = tensor.astype(mx.float16)
    return out


def configuration(tensors: dict[str, mx.array], vocabulary: list[str]) -> dict[str, object]:
    """NeMo's configuration of a hybrid TDT-CTC FastConformer with these tensors."""
    heads, head_width = tensors["encoder.layers.0.self_attn.pos_bias_u"].shape
    d_model = heads * head_width
    layers = 1 + max(int(name.split(".")[2]) for name in tensors if name.startswith("encoder.layers."))
    inner = tensors["encoder.layers.0.feed_forward1.linear1.weight"].shape[0]
    hidden = tensors["decoder.prediction.embed.weight"].shape[1]
    joint_hidden = tensors["joint.enc.weight"].shape[0]
    size = len(vocabulary)
    asr = "nemo.collections.asr"
    return {
        "target": f"{asr}.models.hybrid_rnnt_ctc_bpe_models.EncDecHybridRNNTCTCBPEModel",
        "sample_rate": 16000,
        "model_defaults": {"tdt_durations": DURATIONS, "num_tdt_durations": len(DURATIONS)},
        "preprocessor": {
            "_target_": f"{asr}.modules.AudioToMelSpectrogramPreprocessor",
            "sample_rate": 16000,
            "normalize": "per_feature",
            "window_size": 0.025,
            "window_stride": 0.01,
            "window": "hann",
            "features": 80,
            "n_fft": 512,
            "log": True,
            "frame_splicing": 1,
            "dither": 1e-05,
            "pad_to": 0,
            "pad_value": 0.0,
        },
        "encoder": {
            "_target_": f"{asr}.modules.ConformerEncoder",
            "feat_in": 80,
            "feat_out": -1,
            "n_layers": layers,
            "d_model": d_model,
            "use_bias": "encoder.layers.0.feed_forward1.linear1.bias" in tensors,
            "subsampling": "dw_striding",
            "subsampling_factor": 8,
            "subsampling_conv_channels": tensors["encoder.pre_encode.conv.0.weight"].shape[0],
            "causal_downsampling": False,
            "reduction": None,
            "reduction_position": None,
            "reduction_factor": 1,
            "ff_expansion_factor": inner // d_model,
            "self_attention_model": "rel_pos",
            "n_heads": heads,
            "att_context_size": [-1, -1],
            "att_context_style": "regular",
            "xscaling": False,
            "untie_biases": True,
            "pos_emb_max_len": 5000,
            "conv_kernel_size": tensors["encoder.layers.0.conv.depthwise_conv.weight"].shape[-1],
            "conv_norm_type": "batch_norm",
            "conv_context_size": None,
            "dropout": 0.1,
            "dropout_pre_encoder": 0.1,
            "dropout_emb": 0.0,
            "dropout_att": 0.1,
        },
        "decoder": {
            "_target_": f"{asr}.modules.RNNTDecoder",
            "normalization_mode": None,
            "random_state_sampling": False,
            "blank_as_pad": True,
            "prednet": {"pred_hidden": hidden, "pred_rnn_layers": 1, "t_max": None, "dropout": 0.2},
            "vocab_size": size,
        },
        "joint": {
            "_target_": f"{asr}.modules.RNNTJoint",
            "log_softmax": None,
            "preserve_memory": False,
            "num_extra_outputs": len(DURATIONS),
            "jointnet": {
                "joint_hidden": joint_hidden,
                "activation": "relu",
                "dropout": 0.2,
                "encoder_hidden": d_model,
                "pred_hidden": hidden,
            },
            "num_classes": size,
            "vocabulary": vocabulary,
        },
        "aux_ctc": {
            "ctc_loss_weight": 0.3,
            "decoder": {
                "_target_": f"{asr}.modules.ConvASRDecoder",
                "feat_in": d_model,
                "num_classes": size,
                "vocabulary": vocabulary,
            },
        },
        "decoding": {
            "strategy": "greedy_batch",
            "model_type": "tdt",
            "durations": DURATIONS,
            "greedy": {"max_symbols": 10},
        },
        "tokenizer": {"type": "bpe", "dir": None},
    }


def export(weights: Path, tokenizer: Path, folder: Path) -> None:
    """Writes the folder. Raises RuntimeError when the weights cannot be read, KeyError when a part is missing."""
    loaded = mx.load(str(weights))
    assert isinstance(loaded, dict)
    tensors = renamed(loaded)
    pieces = sentencepiece.SentencePieceProcessor(model_file=str(tokenizer))
    vocabulary = [pieces.id_to_piece(index) for index in range(pieces.get_piece_size())]
    folder.mkdir(parents=True, exist_ok=True)
    mx.save_safetensors(str(folder / "model.safetensors"), tensors, {"format": "pt"})
    text = json.dumps(configuration(tensors, vocabulary), indent=2, ensure_ascii=False)
    (folder / "config.json").write_text(text + "\n", encoding="utf-8")
    shutil.copyfile(tokenizer, folder / "tokenizer.model")


if __name__ == "__main__":
    export(*(Path(argument) for argument in sys.argv[1:4]))
