"""Loads Granite Speech 5 TurboCTC from a folder of the Hugging Face hub, under transformers' names or those
of the code that the first release came with."""

import re

import mlx.core as mx

from spool.errors import ModelUnreadable, WeightsMismatch
from worker.models.artifacts.hub_folder import CONFIG, TOKENIZER, HubFolder, is_hub_folder
from worker.models.artifacts.safetensors import Safetensors
from worker.models.artifacts.tensors import Weights
from worker.models.base import ModelFiles
from worker.models.configuration import in_file
from worker.models.granite.config import MODEL_TYPE, parse_granite
from worker.models.granite.model import GRANITE, GraniteModel, GraniteNetwork
from worker.models.tokenizers.bytes import WordByteTokenizer
from worker.models.weights import default_dtype, install

ORIGINAL = re.compile(r"\.(ff1|attn|post_norm)\.")
"""In the names of the first release's code, whose blocks are those of Granite Speech 3."""
RENAMES = (
    (r"\.ff([12])\.pre_norm\.", r".norm_feed_forward\1."),
    (r"\.ff([12])\.up_proj\.", r".feed_forward\1.linear1."),
    (r"\.ff([12])\.down_proj\.", r".feed_forward\1.linear2."),
    (r"\.attn\.pre_norm\.", ".norm_self_att."),
    (r"\.attn\.to_([qkv])\.", r".self_attn.\1_proj."),
    (r"\.attn\.to_out\.", ".self_attn.o_proj."),
    (r"\.attn\.", ".self_attn."),
    (r"\.conv\.norm\.", ".norm_conv."),
    (r"\.conv\.batch_norm\.", ".conv.norm."),
    (r"\.conv\.depth_conv\.conv\.", ".conv.depthwise_conv."),
    (r"\.conv\.up_conv\.", ".conv.pointwise_lin1."),
    (r"\.conv\.down_conv\.", ".conv.pointwise_lin2."),
    (r"\.post_norm\.", ".norm_out."),
)
FUSED = re.compile(r"(.*)\.attn\.to_kv\.weight")


class Granite:
    """The family of Granite Speech 5 TurboCTC."""

    def matches(self, files: ModelFiles) -> bool:
        return is_hub_folder(files, MODEL_TYPE)

    def load(self, files: ModelFiles, dtype: mx.Dtype | None = None) -> GraniteModel:
        folder, kind = HubFolder(files.path), dtype or default_dtype()
        with in_file(files.path / CONFIG):
            config = parse_granite(folder.config, folder.features)
        tokenizer, network = read_tokenizer(folder, config.vocabulary, config.blank), GraniteNetwork(config)
        weights, source = rename_tensors(folder.weights, str(folder.weights_path)), str(folder.weights_path)
        install(network, weights, kind, source, names=GRANITE)
        network.encoder.fold(kind)
        network.eval()
        mx.eval(network.parameters())
        model = GraniteModel(config, network, tokenizer, kind, name=files.name, files=folder.digests())
        model.bits = folder.bits
        return model


def read_tokenizer(folder: HubFolder, vocabulary: int, blank: int) -> WordByteTokenizer:
    """The tokenizer of a model of that many units, one of which is blank. Raises ModelUnreadable."""
    path, tokens = folder.path / TOKENIZER, folder.tokenizer
    ids = set(tokens.get_vocab().values())
    if ids != set(range(vocabulary)):
        raise ModelUnreadable(
            f"{path}: a tokenizer of another vocabulary: {len(ids)} tokens up to {max(ids, default=-1)}, "
            f"in a model of {vocabulary}"
        )
    reader = WordByteTokenizer(tokens, vocabulary, vocabulary)
    if blank not in reader.special.values():
        raise ModelUnreadable(
            f"{path}: a tokenizer of another vocabulary: token {blank} is {tokens.id_to_token(blank)!r} and "
            "not blank"
        )
    reader.check({}, str(path))
    return reader


def rename_tensors(stored: Weights, source: str) -> Weights:
    """The tensors under transformers' names; keys and values that the first release has as one are parted,
    its pointwise convolutions are matrices."""
    if not any(ORIGINAL.search(name) for name in stored.shapes):
        return stored
    renamed = {}
    for name in stored.shapes:
        tensor = stored.read(name)
        if fused := FUSED.fullmatch(name):
            if tensor.ndim != 2 or tensor.shape[0] % 2:
                raise WeightsMismatch(f"{source}: {name} {list(tensor.shape)} is not keys over values")
            for part, own in zip("kv", mx.split(tensor, 2), strict=True):
                renamed[f"{fused[1]}.self_attn.{part}_proj.weight"] = own
            continue
        for pattern, replacement in RENAMES:
            name = re.sub(pattern, replacement, name)
        is_point = ".pointwise_lin" in name and tensor.ndim == 3 and tensor.shape[2] == 1
        renamed[name] = tensor[..., 0] if is_point else tensor
    return Safetensors(renamed)
