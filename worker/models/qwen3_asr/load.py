"""Loads a Qwen3-ASR, or its forced aligner, from a folder as the Hugging Face hub has it."""

import mlx.core as mx

from worker.models.artifacts.hub_folder import CONFIG, HubFolder, is_hub_folder
from worker.models.attention.audio_tower import AudioEncoder, tower_shapes
from worker.models.attention.causal import CausalDecoder
from worker.models.attention.causal_blocks import causal_weights
from worker.models.base import ModelFiles
from worker.models.configuration import in_file
from worker.models.qwen3_asr import decoder
from worker.models.qwen3_asr.config import MODEL_TYPE, QwenConfig, parse_qwen
from worker.models.qwen3_asr.model import QwenModel
from worker.models.qwen3_asr.tokenizer import MERGES, VOCABULARY, read_tokenizer
from worker.models.weights import default_dtype, read_named


class Qwen3Asr:
    """The family of Qwen3-ASR."""

    def matches(self, files: ModelFiles) -> bool:
        return is_hub_folder(files, MODEL_TYPE)

    def load(self, files: ModelFiles, dtype: mx.Dtype | None = None) -> QwenModel:
        folder = HubFolder(files.path)
        config = read_config(folder)
        tokenizer = read_tokenizer(folder, config)
        parts = load_parts(folder, config, dtype or default_dtype())
        digests = folder.digests(vocabulary=VOCABULARY, merges=MERGES, generation="generation_config.json")
        return QwenModel(config, *parts, tokenizer, name=files.name, files=digests, bits=folder.bits)


def read_config(folder: HubFolder) -> QwenConfig:
    """Raises ModelUnreadable naming the file and the setting."""
    with in_file(folder.path / CONFIG):
        return parse_qwen(folder.config, folder.generation)


def load_parts(folder: HubFolder, config: QwenConfig, dtype: mx.Dtype) -> tuple[AudioEncoder, CausalDecoder]:
    """Encoder and language model. Raises WeightsMismatch naming what is missing, surplus or of another
    shape."""
    weights = folder.weights
    shapes = tower_shapes(config.audio) | decoder.shapes_of(config, weights.shapes)
    tensors = read_named(weights, shapes, str(folder.weights_path), decoder.NAMES)
    audio = AudioEncoder(config.audio, tensors, dtype)
    text = CausalDecoder(
        causal_weights(
            decoder.MODEL,
            decoder.HEAD if config.classes is None else decoder.SCORE,
            config.text,
            tensors,
            dtype,
            epsilon=config.epsilon,
            theta=config.theta,
        ),
        dtype,
        eos=config.ends[-1],
        placeholder=config.audio_token,
        max_tokens=config.text.max_position_embeddings,
    )
    mx.eval(audio.parameters, text.parameters)
    return audio, text
