"""Loads a Sortformer's network from a `.nemo` file."""

from pathlib import Path

import mlx.core as mx

from worker.models.artifacts.nemo import open_nemo
from worker.models.artifacts.nemo_files import CONFIG_NAME
from worker.models.conformer.encoder import EncoderPart
from worker.models.nemo.load import feature_extractor
from worker.models.sortformer.config import parse_sortformer
from worker.models.sortformer.network import SortformerNetwork, shapes_of
from worker.models.weights import install


def load_sortformer(path: Path) -> SortformerNetwork:
    """The network in float32. Raises ModelUnreadable and WeightsMismatch, naming the file and the cause."""
    with open_nemo(path) as archive:
        config = parse_sortformer(archive.config, f"{path}: {CONFIG_NAME}")
        part, weights = EncoderPart(config.encoder), archive.weights
        tensors = install(part, weights, mx.float32, str(path), shapes_of(config))
        part.encoder.fold(mx.float32)
        part.eval()
        mx.eval(part.parameters(), tensors)
        return SortformerNetwork(
            config, part.encoder, tensors, feature_extractor(config.preprocessor, weights)
        )
