"""Loads Cohere Transcribe from a folder as the Hugging Face hub has it."""

from dataclasses import replace

import mlx.core as mx

from worker.models.artifacts.hub_folder import CONFIG, TOKENIZER, HubFolder, is_hub_folder
from worker.models.attention.conformer_model import install_parts
from worker.models.attention.generation import Generation
from worker.models.attention.nemo_decoder import TABLE, NemoDecoder
from worker.models.base import ModelFiles
from worker.models.cohere.config import NAMES, cohere_config
from worker.models.cohere.model import CohereModel
from worker.models.configuration import in_file
from worker.models.conformer.frames import FrameEncoder
from worker.models.front_ends.dithered import DitheredFeatures
from worker.models.tokenizers.hub import prompt_pieces
from worker.models.weights import default_dtype

LANGUAGES = frozenset("ar de el en es fr it ja ko nl pl pt vi zh".split())  # noqa: SIM905


class Cohere:
    """The family of Cohere Transcribe."""

    def matches(self, files: ModelFiles) -> bool:
        return is_hub_folder(files, "cohere_asr")

    def load(self, files: ModelFiles, dtype: mx.Dtype | None = None) -> CohereModel:
        folder, kind = HubFolder(files.path), dtype or default_dtype()
        with in_file(files.path / CONFIG):
            config = cohere_config(folder.config, folder.features)
        rows = config.decoder.rows
        generation = Generation(folder, {}, rows)
        ends = generation.end_rule.ends
        tokenizer = prompt_pieces(folder.tokenizer, rows, ends, str(files.path / TOKENIZER), LANGUAGES)
        weights, source = folder.weights, str(folder.weights_path)
        is_stored = NAMES.find(TABLE, weights.shapes) is not None
        parts = replace(config.decoder, tied=config.decoder.tied or not is_stored)
        encoder, tensors = install_parts(config.encoder, parts, weights, kind, source, NAMES)
        features = DitheredFeatures(config.preprocessor, config.dither)
        model = CohereModel(
            config,
            FrameEncoder(features, encoder, kind),
            NemoDecoder(parts, tensors, kind, ends[0]),
            tokenizer,
            generation,
            name=files.name,
            files=folder.digests(generation="generation_config.json"),
        )
        model.bits = folder.bits
        return model
