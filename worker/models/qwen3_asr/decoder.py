"""Which tensors Qwen3-ASR's language model and its head are, by transformers' names and the original's."""

import re
from collections.abc import Mapping

from worker.models.attention.causal_blocks import causal_shapes
from worker.models.qwen3_asr.config import QwenConfig
from worker.models.weights import Shape

MODEL = "model.language_model"
HEAD, SCORE = "lm_head", "score"
IGNORED = re.compile(r"rotary_emb\.|positional_embedding")
ORIGINAL = (
    (r"^thinker\.audio_tower\.proj([12])\.", r"model.multi_modal_projector.linear_\1."),
    (r"^thinker\.model\.", f"{MODEL}."),
    (r"^thinker\.lm_head\.", f"{HEAD}."),
    (r"^thinker\.", "model."),
)


def hub_name(name: str, *, is_aligner: bool) -> str:
    """What transformers calls a tensor of the original."""
    for pattern, replacement in ORIGINAL:
        name = re.sub(pattern, replacement, name)
    return re.sub(rf"^{HEAD}\.", f"{SCORE}.", name) if is_aligner else name


def shapes_of(config: QwenConfig, stored: Mapping[str, Shape]) -> dict[str, Shape]:
    """The tensors of the language model and its head. stored: those of the file, which may have a head though
    it is tied, and which say how many classes an aligner has where the configuration does not."""
    shapes, width = causal_shapes(MODEL, config.text), config.text.hidden_size
    if config.classes is not None:
        classes = config.classes or stored.get(f"{SCORE}.weight", (1,))[0]
        shapes[f"{SCORE}.weight"] = (classes, width)
        shapes |= {f"{SCORE}.bias": (classes,)} if config.class_bias else {}
    elif not config.tied or f"{HEAD}.weight" in stored:
        shapes[f"{HEAD}.weight"] = (config.text.vocab_size, width)
    return shapes
