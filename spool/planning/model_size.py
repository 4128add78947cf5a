"""The shape of a model, by a known name or from its configuration.

Reads `config.json` of a model's folder for numbers only: what the engine refuses is refused by the engine
(`worker.models.conformer.config`). Reads no weights.
"""

import json
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import yaml

from spool.errors import InvalidRequest
from spool.planning.language_shape import KNOWN_LANGUAGE, LanguageShape, find_language, language_shape
from spool.planning.shapes import BlockShape, DecoderShape, ModelShape, Shape, WhisperShape
from spool.planning.weight_bits import WHOLE, bits_in_name

CONFIG_NAME = "config.json"
WENET_NAME = "train.yaml"

_FLASH = DecoderShape(4, 1024, stamped=True)
KNOWN: Mapping[str, ModelShape | BlockShape] = {
    shape.name: shape
    for shape in (
        ModelShape("parakeet-tdt-0.6b", 128, 24, 1024, lstm_layers=2),
        ModelShape("parakeet-tdt_ctc-110m", 80, 17, 512),
        ModelShape("canary-180m-flash", 128, 17, 512, labels=5248, decoder=_FLASH),
        ModelShape("canary-1b-flash", 128, 32, 1024, labels=5248, decoder=_FLASH),
        ModelShape("canary-1b-v2", 128, 32, 1024, labels=16384, decoder=DecoderShape(8, 1024, prompt=10)),
        ModelShape(
            "cohere-transcribe", 128, 48, 1280, labels=16384, decoder=DecoderShape(8, 1024, prompt=10)
        ),
        ModelShape("canary-1b", 128, 24, 1024, labels=4128, decoder=DecoderShape(24, 1024, prompt=5)),
        BlockShape("granite-speech-5.0-470m-turboctc"),
    )
}
KNOWN_WHISPERS: Mapping[str, WhisperShape] = {
    shape.name: shape
    for shape in (
        WhisperShape("tiny", 80, 384, 4, 4),
        WhisperShape("base", 80, 512, 6, 6),
        WhisperShape("small", 80, 768, 12, 12),
        WhisperShape("medium", 80, 1024, 24, 24),
        WhisperShape("distil-large-v3", 128, 1280, 32, 2, 51866),
        WhisperShape("large-v3-turbo", 128, 1280, 32, 4, 51866),
        WhisperShape("large-v3", 128, 1280, 32, 32, 51866),
        WhisperShape("large", 80, 1280, 32, 32),
        WhisperShape("turbo", 128, 1280, 32, 4, 51866),
    )
}
# The first that a name contains; canary-1b is in the names of two others.
_SHORT = {
    "0.6b": "parakeet-tdt-0.6b",
    "110m": "parakeet-tdt_ctc-110m",
    "granite-speech-5": "granite-speech-5.0-470m-turboctc",
} | {name: name for name in KNOWN if name.startswith(("canary", "cohere"))}
GRANITE = "granite_speech5_ctc"
LANGUAGE_MODEL = "lstm_language_model"
"""The `model_type` of a folder whose model only reads the hypotheses of others."""


def read_shape(model: str) -> Shape:
    """The shape of a known model (by any name that contains 0.6b, 110m, a Canary's name, or whisper and a
    size) or of a folder with a `config.json` or WeNet's `train.yaml`.

    Raises InvalidRequest for anything else, and for a configuration without sizes.
    """
    folder = Path(model).expanduser()
    if folder.is_dir():
        return _read_folder(folder)
    if shape := _find_known(model):
        return replace(shape, bits=bits_in_name(model))
    raise InvalidRequest(
        f"The sizes of the model {model!r} are not known: it is not a folder with a {CONFIG_NAME} that gives "
        f"them, and its name contains none of {', '.join((*KNOWN, *KNOWN_LANGUAGE))} or whisper- with "
        f"{', '.join(KNOWN_WHISPERS)}. Name one with --model."
    )


def _find_known(model: str) -> Shape | None:
    return (
        _find_whisper(model)
        or find_language(model)
        or next((KNOWN[name] for short, name in _SHORT.items() if short in model.lower()), None)
    )


def _find_whisper(model: str) -> WhisperShape | None:
    """The largest of the sizes in the name, if it is a Whisper's."""
    name = model.lower()
    if "whisper" not in name and "distil-large" not in name:
        return None
    sizes = sorted((size for size in KNOWN_WHISPERS if size in name), key=len)
    return KNOWN_WHISPERS[sizes[-1]] if sizes else None


def _read_folder(folder: Path) -> Shape:
    name, path = folder.resolve().name, folder / WENET_NAME
    try:
        if path.is_file():
            return _check(_wenet_shape(yaml.safe_load(path.read_text(encoding="utf-8")), name))
        path = folder / CONFIG_NAME
        tree = json.loads(path.read_text(encoding="utf-8"))
        if tree.get("model_type") == LANGUAGE_MODEL:
            raise InvalidRequest(f"{path} is a language model, which takes almost no time; plan without it.")
        # CTranslate2's configuration has no sizes, so they are those of the folder's name.
        shape = _check(
            _block_shape(tree, name)
            or _whisper_shape(tree, name)
            or language_shape(tree, name)
            or _find_whisper(name)
            or _hub_shape(tree, name)
            or _nemo_shape(tree, name)
        )
        return replace(shape, bits=int(tree.get("quantization", {}).get("bits", WHOLE)))
    except OSError as error:
        raise InvalidRequest(f"{path} cannot be read: {error.strerror}.") from error
    except (ValueError, KeyError, TypeError, yaml.YAMLError) as error:
        raise InvalidRequest(f"{path} does not give the model's sizes: {error!r}.") from error


def _check(shape: Shape) -> Shape:
    sizes: tuple[int, ...]
    if isinstance(shape, LanguageShape):
        sizes = shape.sizes
    elif isinstance(shape, WhisperShape):
        sizes = (shape.mels, shape.width, shape.encoder_layers, shape.decoder_layers, shape.vocabulary)
    elif isinstance(shape, BlockShape):
        sizes = (shape.mels, shape.layers, shape.width, shape.inner, shape.block, shape.kernel, shape.labels)
    else:
        sizes = (shape.mels, shape.layers, shape.width, shape.expansion, shape.kernel, shape.factor)
    if min(sizes) < 1:
        raise ValueError("a size is below one")
    return shape


def _whisper_shape(tree: Mapping[str, Any], name: str) -> WhisperShape | None:
    """The shape in OpenAI's, mlx-community's or Hugging Face's layout; None if it is none of these."""
    if "n_audio_state" in tree:
        keys = ("n_mels", "n_audio_state", "n_audio_layer", "n_text_layer", "n_vocab")
    elif tree.get("model_type") == "whisper":
        keys = ("num_mel_bins", "d_model", "encoder_layers", "decoder_layers", "vocab_size")
    else:
        return None
    return WhisperShape(name, *(int(tree[key]) for key in keys))


def _nemo_shape(tree: Mapping[str, Any], name: str) -> ModelShape:
    attention = tree.get("transf_decoder")
    encoder, decoder, joint = tree["encoder"], tree.get("decoder", {}), tree.get("joint")
    if attention is None and "decoder" not in tree:
        raise KeyError("decoder")
    local = encoder.get("self_attention_model") == "rel_pos_local_attn"
    return ModelShape(
        name=name,
        mels=int(encoder["feat_in"]),
        layers=int(encoder["n_layers"]),
        width=int(encoder["d_model"]),
        expansion=int(encoder.get("ff_expansion_factor", 4)),
        kernel=int(encoder.get("conv_kernel_size", 31)),
        factor=int(encoder.get("subsampling_factor", 4)),
        channels=_channels(encoder),
        heads=int(encoder.get("n_heads", 4)),
        window=sum(encoder["att_context_size"]) + 1 if local else None,
        hidden=int(decoder["prednet"]["pred_hidden"]) if joint else 0,
        lstm_layers=int(decoder["prednet"].get("pred_rnn_layers", 1)) if joint else 0,
        joint=int(joint["jointnet"]["joint_hidden"]) if joint else 0,
        labels=_labels(tree),
        durations=len(tree.get("model_defaults", {}).get("tdt_durations") or ()) if joint else 0,
        decoder=None if attention is None else _decoder(tree, attention["config_dict"]),
    )


# What transformers takes where a configuration says nothing, by its `model_type`.
_HUB: Mapping[str, Mapping[str, Any]] = {
    "parakeet_ctc": {"vocab_size": 1025},
    "parakeet_rnnt": {"vocab_size": 8193},
    "parakeet_tdt": {"vocab_size": 8193},
    "canary": {"vocab_size": 16384, "num_hidden_layers": 32, "num_mel_bins": 128, "prompt": 9},
    "cohere_asr": {
        "vocab_size": 16384,
        "num_hidden_layers": 48,
        "num_mel_bins": 128,
        "prompt": 10,
        "hidden_size": 1280,
        "intermediate_size": 5120,
    },
}


def _hub_shape(tree: Mapping[str, Any], name: str) -> ModelShape | None:
    """The shape of a FastConformer in transformers' layout; None if it is none."""
    kind = str(tree.get("model_type"))
    if kind not in _HUB:
        return None
    encoder = {**_HUB[kind], **(tree.get("encoder_config") or {})}
    decoder = tree if kind == "cohere_asr" else tree.get("decoder_config") or {}
    width, is_transducer = int(encoder.get("hidden_size", 1024)), kind in ("parakeet_rnnt", "parakeet_tdt")
    hidden = int(tree.get("decoder_hidden_size", 640)) if is_transducer else 0
    labels = int(tree.get("vocab_size", _HUB[kind]["vocab_size"]))
    is_attention = kind in ("canary", "cohere_asr")
    layers, inside = int(decoder.get("num_hidden_layers", 8)), int(decoder.get("hidden_size", 1024))
    return ModelShape(
        name=name,
        mels=int(encoder.get("num_mel_bins", 80)),
        layers=int(encoder.get("num_hidden_layers", 24)),
        width=width,
        expansion=max(int(encoder.get("intermediate_size", 4096)) // width, 1),
        kernel=int(encoder.get("conv_kernel_size", 9)),
        factor=int(encoder.get("subsampling_factor", 8)),
        channels=int(encoder.get("subsampling_conv_channels", 256)),
        heads=int(encoder.get("num_attention_heads", 8)),
        hidden=hidden,
        lstm_layers=int(tree.get("num_decoder_layers", 2)) if is_transducer else 0,
        joint=hidden,
        labels=labels if is_attention else labels - 1,
        durations=len(tree.get("durations", range(5))) if kind == "parakeet_tdt" else 0,
        decoder=DecoderShape(layers, inside, prompt=_HUB[kind]["prompt"]) if is_attention else None,
    )


def _block_shape(tree: Mapping[str, Any], name: str) -> BlockShape | None:
    """Granite's, with transformers' values for what is left out; None for another family."""
    if tree.get("model_type") != GRANITE:
        return None
    encoder = {key: value for key, value in tree.get("encoder_config", {}).items() if value is not None}
    width, heads = int(encoder.get("hidden_size", 1024)), int(encoder.get("num_attention_heads", 8))
    return BlockShape(
        name=name,
        mels=int(encoder.get("num_mel_bins", 80)),
        layers=int(encoder.get("num_hidden_layers", 16)),
        width=width,
        inner=int(encoder.get("intermediate_size", 4096)),
        heads=heads,
        head_width=int(encoder.get("head_dim", width // heads)),
        block=int(encoder.get("context_size", 128)),
        kernel=int(encoder.get("conv_kernel_size", 7)),
        expansion=int(encoder.get("conv_expansion_factor", 2)),
        pooled=tuple(int(layer) for layer in encoder.get("subsample_layers", (0, 1))),
        labels=int(tree.get("vocab_size", 16_384)),
    )


def _wenet_shape(tree: Mapping[str, Any], name: str) -> ModelShape:
    encoder, decoder = tree["encoder_conf"], tree.get("decoder_conf") or {}
    width, is_transducer = int(encoder["output_size"]), tree.get("model") == "transducer"
    backwards = int(decoder.get("r_num_blocks", 0))
    layers = int(decoder.get("num_blocks", 6)) + backwards
    predictor = (tree.get("predictor_conf") or {}) if is_transducer else {}
    return ModelShape(
        name=name,
        mels=int(tree.get("input_dim", 80)),
        layers=int(encoder["num_blocks"]),
        width=width,
        expansion=int(encoder["linear_units"]) // width,
        kernel=int(encoder.get("cnn_module_kernel", 15)),
        factor={"conv2d": 4, "conv2d6": 6, "conv2d8": 8}[encoder.get("input_layer", "conv2d")],
        channels=width,
        heads=int(encoder.get("attention_heads", 4)),
        hidden=int(predictor.get("hidden_size", 0)),
        lstm_layers=int(predictor.get("num_layers", 1)) if is_transducer else 0,
        joint=int(tree["joint_conf"]["join_dim"]) if is_transducer else 0,
        labels=int(tree["output_dim"]) - 1,
        durations=0,
        readers=DecoderShape(layers, width, prompt=1, backwards=backwards),
    )


def _decoder(tree: Mapping[str, Any], config: Mapping[str, Any]) -> DecoderShape:
    """Canary's. The flash models have a separate tokenizer for their special tokens, and write times."""
    is_first = tree.get("prompt_format") == "canary"
    is_aggregate = (tree.get("tokenizer") or {}).get("type") == "agg"
    return DecoderShape(
        int(config["num_layers"]),
        int(config["hidden_size"]),
        prompt=5 if is_first else 9 if is_aggregate else 10,
        stamped=is_aggregate and not is_first,
    )


def _channels(encoder: Mapping[str, Any]) -> int:
    given = int(encoder.get("subsampling_conv_channels", -1))
    return given if given > 0 else int(encoder["d_model"])


def _labels(tree: Mapping[str, Any]) -> int:
    for section, key in (
        ("head", "num_classes"),
        ("decoder", "vocab_size"),
        ("joint", "num_classes"),
        ("decoder", "num_classes"),
    ):
        size = (tree.get(section) or {}).get(key)
        if isinstance(size, int) and size > 0:
            return size
    words = (tree.get("joint") or tree.get("decoder") or {}).get("vocabulary")
    return len(words) if words else 1024
