"""The configuration of Cohere Transcribe as transformers stores it, and how its tensors are called.

A key that is missing has transformers' default (5.24, models/cohere_asr/configuration_cohere_asr.py and
feature_extraction_cohere_asr.py). Reads no weights.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from spool.errors import ModelUnreadable
from worker.models.attention.nemo_decoder import DECODER_RENAMES, DecoderParts, decoder_of_hub
from worker.models.configuration import require, require_number, require_size
from worker.models.conformer.config import EncoderConfig, PreprocessorConfig
from worker.models.conformer.hub import ENCODER_RENAMES, IGNORED, encoder_of_hub, features_of_hub
from worker.models.weights import NameMap

ENCODER: Mapping[str, Any] = {
    "hidden_size": 1280,
    "num_hidden_layers": 48,
    "intermediate_size": 5120,
    "num_mel_bins": 128,
    "scale_input": False,
}
# The published file has NeMo's names; `save_pretrained` puts `model.` before them; in memory they are others.
NAMES = NameMap(
    IGNORED,
    also=(
        NameMap(IGNORED, ((r"^(?!log_softmax)", "model."),)),
        NameMap(IGNORED, (*ENCODER_RENAMES, *DECODER_RENAMES, (r"^(?!proj_out)", "model."))),
    ),
)


@dataclass(frozen=True, slots=True)
class CohereConfig:
    """One model. dither: of samples, as a share of full scale. clip_seconds: the longest audio that is heard
    at once; search_seconds: of its end, where longer audio may be cut; level_samples: what is compared there
    for its loudness."""

    preprocessor: PreprocessorConfig
    encoder: EncoderConfig
    decoder: DecoderParts
    dither: float
    clip_seconds: float
    search_seconds: float
    level_samples: int

    @property
    def frame_seconds(self) -> float:
        """Seconds from one encoder frame to the next."""
        return self.preprocessor.window_stride * self.encoder.subsampling_factor


def cohere_config(tree: Mapping[str, Any], features: Mapping[str, Any]) -> CohereConfig:
    """Builds the dataclasses of config.json and of the settings of features. Raises ModelUnreadable for what
    is not computed."""
    encoder = encoder_of_hub({**ENCODER, **(tree.get("encoder_config") or {})})
    tied = tree.get("tie_word_embeddings", False)
    require("tie_word_embeddings", tied, True, False)
    clip, search, dither = (
        require_number(f"feature_extractor.{key}", features.get(key, default), least=-1e-9)
        for key, default in (("max_audio_clip_s", 35.0), ("overlap_chunk_second", 5.0), ("dither", 1e-5))
    )
    level = features.get("min_energy_window_samples", 1600)
    require_size("feature_extractor.min_energy_window_samples", level)
    if not 0 <= search <= clip or clip <= 0:
        raise ModelUnreadable(
            f"feature_extractor: a clip of {clip} s cannot be cut within its last {search} s by windows of "
            f"{level} samples"
        )
    return CohereConfig(
        features_of_hub(features, encoder.feat_in, "feature_extractor"),
        encoder,
        decoder_of_hub(tree, "", tied=tied, projected=encoder.d_model),
        dither,
        clip,
        search,
        level,
    )
