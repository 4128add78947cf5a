"""Which tensors Qwen3-ASR's language model and its head are, by transformers' names and the original's."""

import re
from collections.abc import Mapping

from worker.models.attention.causal_blocks import causal_shapes
from worker.models.qwen3_asr.config import QwenConfig
from worker.models.weights import NameMap, Shape

MODEL = "model.language_model"
HEAD, SCORE = "lm_head", "score"
IGNORED = re.compile(r"rotary_emb\.|positional_embedding")
ORIGINAL = (
    (r"^model\.multi_modal_projector\.linear_([12])\.", r"thinker.audio_tower.proj\1."),
    (rf"^{re.escape(MODEL)}\.", "thinker.model."),
    (r"^model\.", "thinker."),
    (rf"^({HEAD}|{SCORE})\.", f"thinker.{HEAD}."),
)
NAMES = NameMap(IGNORED, otherwise=((rf"^{SCORE}\.", f"{HEAD}."),), also=(NameMap(IGNORED, ORIGINAL),))


def shapes_of(config: QwenConfig, stored: Mapping[str, Shape]) -> dict[str, Shape]:
    """The tensors of the language model and its head. stored: those of the file, which may have a head though
    it is tied, and which say how many classes an aligner has where the configuration does not."""
    shapes, width = causal_shapes(MODEL, config.text), config.text.hidden_size
    head = NAMES.find(f"{SCORE if config.classes is not None else HEAD}.weight", stored)
    if config.classes is not None:
        classes = config.classes or (stored[head][0] if head else 1)
        shapes[f"{SCORE}.weight"] = (classes, width)
        shapes |= {f"{SCORE}.bias": (classes,)} if config.class_bias else {}
    elif head or not config.tied:
        shapes[f"{HEAD}.weight"] = (config.text.vocab_size, width)
    return shapes
