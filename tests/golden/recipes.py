"""Tiny NeMo models with random but seeded weights that decode neither all blank nor endlessly.

Runs where NeMo is installed, and there alone. Weights are PyTorch's initial ones with every norm, bias and
running statistic perturbed, so that a port that leaves one out is found; the output heads are then calibrated
on real speech: label logits centred and scaled to a chosen spread, blank's bias bisected until greedy search
emits the wanted number of tokens a frame. Every weight is rounded to a 16-bit float, so that files hold half
the bytes and the same values.
"""

import copy
import io
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import nemo.collections.asr as nemo_asr
import numpy as np
import sentencepiece
import torch
from omegaconf import OmegaConf, open_dict

DURATIONS = [0, 1, 2, 3, 4]
WIDTH = 64
HIDDEN = 64
DATA = {"manifest_filepath": None, "sample_rate": 16000, "batch_size": 4, "shuffle": False}
MODULES = "nemo.collections.asr.modules"


@dataclass(frozen=True)
class Recipe:
    """One model. `rate` is tokens a frame of greedy search; `spread` the deviation of a label's logit."""

    name: str
    seed: int
    head: str  # "tdt", "rnnt", "ctc", "hybrid"
    spread: float = 2.2
    rate: float = 0.35
    mels: int = 80
    lstm_layers: int = 1
    vocabulary: int = 96
    width: int = WIDTH
    hidden: int = HIDDEN
    encoder: dict[str, Any] = field(default_factory=dict)


RECIPES = [
    # As parakeet-tdt-0.6b: 128 mels, no biases, no input scaling, two LSTM layers.
    Recipe("tdt", 11, "tdt", mels=128, lstm_layers=2, encoder={"use_bias": False}),
    # Tied position biases, input scaling, layer norm, a wide kernel, more than one token a frame at times.
    Recipe(
        "rnnt",
        31,
        "rnnt",
        spread=1.2,
        rate=0.8,
        encoder={
            "xscaling": True,
            "untie_biases": False,
            "conv_norm_type": "layer_norm",
            "conv_kernel_size": 31,
        },
    ),
    Recipe("ctc", 51, "ctc", rate=0.5, encoder={"xscaling": True}),
    # As parakeet-tdt_ctc: both heads. Local attention is a variant of its weights, see VARIANTS.
    Recipe("hybrid", 71, "hybrid", spread=1.5, rate=0.45),
    # As the streaming models: causal subsampling and convolution, chunked attention, layer norm.
    Recipe(
        "causal",
        81,
        "rnnt",
        rate=0.3,
        vocabulary=64,
        encoder={
            "causal_downsampling": True,
            "conv_context_size": "causal",
            "conv_norm_type": "layer_norm",
            "att_context_size": [14, 6],
            "att_context_style": "chunked_limited",
            "xscaling": True,
        },
    ),
]


def make_tokenizer(texts: list[str], vocabulary: int, folder: Path) -> Path:
    """A sentencepiece BPE of that size over the texts, as NeMo wants to find it."""
    folder.mkdir(parents=True, exist_ok=True)
    model = io.BytesIO()
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=iter(texts),
        model_writer=model,
        vocab_size=vocabulary,
        model_type="bpe",
        character_coverage=1.0,
        bos_id=-1,
        eos_id=-1,
        pad_id=-1,
        unk_id=0,
        normalization_rule_name="identity",  # the default brings tables of 240 kB
        num_threads=1,
        minloglevel=2,
    )
    (folder / "tokenizer.model").write_bytes(model.getvalue())
    pieces = sentencepiece.SentencePieceProcessor(model_proto=model.getvalue())
    names = [pieces.id_to_piece(index) for index in range(pieces.get_piece_size())]
    (folder / "vocab.txt").write_text("\n".join(names) + "\n")
    scored = [f"{name}\t{pieces.get_score(index):g}\n" for index, name in enumerate(names)]
    (folder / "tokenizer.vocab").write_text("".join(scored))
    return folder


def configuration(recipe: Recipe, tokenizer: Path) -> dict[str, Any]:
    """NeMo's configuration of the recipe."""
    config = {
        "sample_rate": 16000,
        "log_prediction": False,
        "skip_nan_grad": False,
        "train_ds": DATA,
        "validation_ds": DATA,
        "test_ds": DATA,
        "tokenizer": {"dir": str(tokenizer), "type": "bpe"},
        "preprocessor": {
            "_target_": f"{MODULES}.AudioToMelSpectrogramPreprocessor",
            "sample_rate": 16000,
            "normalize": "per_feature",
            "window_size": 0.025,
            "window_stride": 0.01,
            "window": "hann",
            "features": recipe.mels,
            "n_fft": 512,
            "log": True,
            "frame_splicing": 1,
            "dither": 1e-5,
            "pad_to": 0,
            "pad_value": 0.0,
        },
        "encoder": _encoder(recipe),
        "optim": {"name": "adamw", "lr": 1e-3},
    }
    if recipe.head == "ctc":
        decoder = _ctc_decoder(recipe.width, -1)
        return config | {
            "ctc_reduction": "mean_batch",
            "decoder": decoder,
            "decoding": {"strategy": "greedy_batch"},
        }
    return config | _transducer(recipe)


def _encoder(recipe: Recipe) -> dict[str, Any]:
    return {
        "_target_": f"{MODULES}.ConformerEncoder",
        "feat_in": recipe.mels,
        "feat_out": -1,
        "n_layers": 2,
        "d_model": recipe.width,
        "use_bias": True,
        "subsampling": "dw_striding",
        "subsampling_factor": 8,
        "subsampling_conv_channels": 16,
        "causal_downsampling": False,
        "reduction": None,
        "reduction_position": None,
        "reduction_factor": 1,
        "ff_expansion_factor": 2,
        "self_attention_model": "rel_pos",
        "n_heads": 4,
        "att_context_size": [-1, -1],
        "att_context_style": "regular",
        "xscaling": False,
        "untie_biases": True,
        "pos_emb_max_len": 5000,
        "conv_kernel_size": 9,
        "conv_norm_type": "batch_norm",
        "conv_context_size": None,
        "dropout": 0.1,
        "dropout_pre_encoder": 0.1,
        "dropout_emb": 0.0,
        "dropout_att": 0.1,
        "stochastic_depth_drop_prob": 0.0,
    } | recipe.encoder


def _ctc_decoder(width: int | None, classes: int) -> dict[str, Any]:
    return {
        "_target_": f"{MODULES}.ConvASRDecoder",
        "feat_in": width,
        "num_classes": classes,
        "vocabulary": [],
    }


def _transducer(recipe: Recipe) -> dict[str, Any]:
    is_tdt = recipe.head in ("tdt", "hybrid")
    durations = {"tdt_durations": DURATIONS, "num_tdt_durations": len(DURATIONS)} if is_tdt else {}
    network = {
        "pred_hidden": recipe.hidden,
        "pred_rnn_layers": recipe.lstm_layers,
        "t_max": None,
        "dropout": 0.2,
    }
    loss = (
        {
            "loss_name": "tdt",
            "tdt_kwargs": {
                "fastemit_lambda": 0.0,
                "clamp": -1.0,
                "durations": DURATIONS,
                "sigma": 0.02,
                "omega": 0.1,
            },
        }
        if is_tdt
        else {"loss_name": "default", "warprnnt_numba_kwargs": {"fastemit_lambda": 0.0, "clamp": -1.0}}
    )
    parts = {
        "compute_eval_loss": False,
        "model_defaults": {
            "enc_hidden": recipe.width,
            "pred_hidden": recipe.hidden,
            "joint_hidden": recipe.hidden,
            **durations,
        },
        "decoder": {
            "_target_": f"{MODULES}.RNNTDecoder",
            "normalization_mode": None,
            "random_state_sampling": False,
            "blank_as_pad": True,
            "prednet": network,
        },
        "joint": {
            "_target_": f"{MODULES}.RNNTJoint",
            "log_softmax": None,
            "preserve_memory": False,
            "fuse_loss_wer": False,
            "fused_batch_size": -1,
            "num_extra_outputs": len(DURATIONS) if is_tdt else 0,
            "jointnet": {"joint_hidden": recipe.hidden, "activation": "relu", "dropout": 0.2},
        },
        "decoding": {
            "strategy": "greedy_batch",
            "model_type": "tdt" if is_tdt else "rnnt",
            **({"durations": DURATIONS} if is_tdt else {}),
            "greedy": {"max_symbols": 10},
            "beam": {"beam_size": 4, "return_best_hypothesis": False, "score_norm": True},
        },
        "loss": loss,
    }
    if recipe.head == "hybrid":
        parts["aux_ctc"] = {
            "ctc_loss_weight": 0.3,
            "use_cer": False,
            "ctc_reduction": "mean_batch",
            "decoder": _ctc_decoder(None, recipe.vocabulary),
            "decoding": {"strategy": "greedy_batch"},
        }
    return parts


def build(recipe: Recipe, tokenizer: Path, audio: list[np.ndarray]) -> nemo_asr.models.ASRModel:
    """The model, calibrated on `audio`, in 16-bit values."""
    torch.manual_seed(recipe.seed)
    kind = {
        "tdt": nemo_asr.models.EncDecRNNTBPEModel,
        "rnnt": nemo_asr.models.EncDecRNNTBPEModel,
        "ctc": nemo_asr.models.EncDecCTCModelBPE,
        "hybrid": nemo_asr.models.EncDecHybridRNNTCTCBPEModel,
    }[recipe.head]
    model = kind(cfg=OmegaConf.create(configuration(recipe, tokenizer))).eval()
    model.preprocessor.featurizer.dither = 0.0
    perturb(model, recipe.seed + 1)
    halve(model)
    encoded = [encode(model, samples) for samples in audio]
    if recipe.head != "ctc":
        calibrate_transducer(model, recipe, encoded)
    if recipe.head in ("ctc", "hybrid"):
        head = model.decoder if recipe.head == "ctc" else model.ctc_decoder
        calibrate_ctc(head, recipe, encoded)
    halve(model)
    with open_dict(model.cfg):
        for name in ("train_ds", "validation_ds", "test_ds"):
            model.cfg[name] = dict(DATA)
        model.cfg.tokenizer.dir = None  # a folder of the machine that made it; the file itself is inside
    return model


@torch.no_grad()
def halve(model: torch.nn.Module) -> None:
    """Rounds every weight to a 16-bit float; the front end's filters stay as they are."""
    for name, tensor in model.state_dict().items():
        if tensor.is_floating_point() and not name.startswith("preprocessor."):
            tensor.copy_(tensor.half().float())


@torch.no_grad()
def perturb(model: torch.nn.Module, seed: int) -> None:
    """Moves every norm, statistic and position bias away from where it starts."""
    generator = torch.Generator().manual_seed(seed)

    def normal(like: torch.Tensor, deviation: float) -> torch.Tensor:
        return torch.randn(like.shape, generator=generator) * deviation

    def uniform(like: torch.Tensor, low: float, high: float) -> torch.Tensor:
        return torch.rand(like.shape, generator=generator) * (high - low) + low

    for module in model.encoder.modules():
        if isinstance(module, torch.nn.BatchNorm1d):
            module.running_mean.copy_(normal(module.running_mean, 0.2))
            module.running_var.copy_(uniform(module.running_var, 0.3, 1.5))
            module.num_batches_tracked.fill_(1234)
        if isinstance(module, torch.nn.BatchNorm1d | torch.nn.LayerNorm):
            module.weight.copy_(uniform(module.weight, 0.5, 1.5))
            module.bias.copy_(normal(module.bias, 0.2))
    for name, parameter in model.encoder.named_parameters():
        if name.endswith(("pos_bias_u", "pos_bias_v")):
            parameter.copy_(normal(parameter, 0.5))
        elif name.endswith("linear_pos.weight"):
            parameter.mul_(2.0)
        elif "pre_encode" in name and name.endswith(".bias"):
            parameter.copy_(normal(parameter, 0.05))
        elif "pre_encode.conv" in name and name.endswith("weight"):
            parameter.mul_(1.8)  # else the stack of rectifiers collapses to its biases


@torch.no_grad()
def encode(model: torch.nn.Module, samples: np.ndarray) -> torch.Tensor:
    """Encoder frames of one utterance, [1, d, T]."""
    signal, length = torch.from_numpy(samples)[None], torch.tensor([len(samples)])
    features, lengths = model.preprocessor(input_signal=signal, length=length)
    return model.encoder(audio_signal=features, length=lengths)[0]


def bisect(rate: Callable[[float], float], low: float, high: float, target: float) -> float:
    """Where the falling function meets the target."""
    for _ in range(18):
        middle = (low + high) / 2
        low, high = (middle, high) if rate(middle) > target else (low, middle)
    return (low + high) / 2


@torch.no_grad()
def calibrate_transducer(model: torch.nn.Module, recipe: Recipe, encoded: list[torch.Tensor]) -> None:
    """Centres and scales what the joint sees and says, then sets blank's bias."""
    generator = torch.Generator().manual_seed(recipe.seed + 2)
    blank, joint = model.decoder.blank_idx, model.joint
    frames = torch.cat([e[0].T for e in encoded])
    joint.enc.weight.div_((frames @ joint.enc.weight.T).std(0).mean())
    joint.enc.bias.copy_(-(frames @ joint.enc.weight.T).mean(0))
    embedding = model.decoder.prediction["embed"].weight
    embedding.copy_(torch.randn(embedding.shape, generator=generator))
    embedding[blank].zero_()
    for name, parameter in model.decoder.prediction["dec_rnn"].named_parameters():
        if "weight" in name:
            parameter.mul_(2.0)
    histories = torch.randint(0, blank, (64, 12), generator=generator)
    outputs = model.decoder.predict(histories, None, add_sos=True, batch_size=64)[0]
    outputs = outputs.reshape(-1, recipe.hidden)
    joint.pred.weight.div_((outputs @ joint.pred.weight.T).std(0).mean()).mul_(0.35)
    joint.pred.bias.copy_(-(outputs @ joint.pred.weight.T).mean(0))
    rows = torch.randint(0, len(frames), (4000,), generator=generator)
    columns = torch.randint(0, len(outputs), (4000,), generator=generator)
    joined = torch.relu(joint.enc(frames[rows]) + joint.pred(outputs[columns]))
    last, labels = joint.joint_net[-1], blank + 1
    deviation = (joined @ last.weight.T).std(0)
    last.weight[:labels].mul_((recipe.spread / deviation[:labels])[:, None])
    last.weight[labels:].mul_((1.5 / deviation[labels:])[:, None])
    last.bias.copy_(-(joined @ last.weight.T).mean(0))
    if len(last.bias) > labels:
        last.bias[labels:] += torch.tensor([-1.2, 0.6, 0.4, 0.0, -0.3])
    base = last.bias[blank].clone()
    halve(model)

    def rate(bias: float) -> float:
        last.bias[blank] = base + bias
        tokens = 0
        for frames_of_one in encoded:
            length = torch.tensor([frames_of_one.shape[2]])
            found = model.decoding.rnnt_decoder_predictions_tensor(
                frames_of_one, length, return_hypotheses=True
            )
            tokens += len(found[0].y_sequence)
        return tokens / len(frames)

    last.bias[blank] = base + bisect(rate, -3.0, 25.0, recipe.rate)


@torch.no_grad()
def calibrate_ctc(head: torch.nn.Module, recipe: Recipe, encoded: list[torch.Tensor]) -> None:
    """The same for a CTC head."""
    linear = head.decoder_layers[0]
    frames = torch.cat([e[0].T for e in encoded])
    weight = linear.weight[:, :, 0]
    weight.mul_((recipe.spread / (frames @ weight.T).std(0))[:, None])
    linear.bias.copy_(-(frames @ weight.T).mean(0))
    base = linear.bias[-1].clone()

    def rate(bias: float) -> float:
        linear.bias[-1] = base + bias
        tokens = 0
        for frames_of_one in encoded:
            best = torch.unique_consecutive(head(encoder_output=frames_of_one)[0].argmax(-1))
            tokens += int((best != len(linear.bias) - 1).sum())
        return tokens / len(frames)

    linear.bias[-1] = base + bisect(rate, -3.0, 25.0, recipe.rate)


def variant(model: nemo_asr.models.ASRModel, **encoder: object) -> torch.nn.Module:
    """An encoder of the same weights under another configuration."""
    config = copy.deepcopy(OmegaConf.to_container(model.cfg.encoder))
    other = type(model.encoder)(**{k: v for k, v in (config | encoder).items() if k != "_target_"}).eval()
    other.load_state_dict(model.encoder.state_dict())
    return other
