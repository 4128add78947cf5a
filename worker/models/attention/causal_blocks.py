"""A checkpoint's tensors as a decoder-only model, by transformers' names of such models' layers."""

from dataclasses import dataclass

import mlx.core as mx

from worker.models.attention.blocks import Tensors
from worker.models.attention.causal import CausalBlock, CausalWeights, GatedMlp, GroupedAttention, RmsNorm
from worker.models.attention.decoder import tokens_last
from worker.models.attention.layers import pack
from worker.models.weights import Shape


@dataclass(frozen=True, slots=True)
class CausalSizes:
    """Of a language model, as its configuration calls them; the defaults are transformers' `Qwen3Config`."""

    vocab_size: int = 151936
    hidden_size: int = 4096
    intermediate_size: int = 22016
    num_hidden_layers: int = 32
    num_attention_heads: int = 32
    num_key_value_heads: int = 32
    head_dim: int = 128
    max_position_embeddings: int = 32768


def causal_shapes(model: str, sizes: CausalSizes) -> dict[str, Shape]:
    """The tensors of a model without its head."""
    width, inner, each = sizes.hidden_size, sizes.intermediate_size, sizes.head_dim
    queries, shared = sizes.num_attention_heads * each, sizes.num_key_value_heads * each
    shapes: dict[str, Shape] = {
        f"{model}.embed_tokens.weight": (sizes.vocab_size, width),
        f"{model}.norm.weight": (width,),
    }
    for layer in range(sizes.num_hidden_layers):
        block = f"{model}.layers.{layer}"
        shapes |= {
            f"{block}.self_attn.q_proj.weight": (queries, width),
            f"{block}.self_attn.k_proj.weight": (shared, width),
            f"{block}.self_attn.v_proj.weight": (shared, width),
            f"{block}.self_attn.o_proj.weight": (width, queries),
            f"{block}.self_attn.q_norm.weight": (each,),
            f"{block}.self_attn.k_norm.weight": (each,),
            f"{block}.mlp.gate_proj.weight": (inner, width),
            f"{block}.mlp.up_proj.weight": (inner, width),
            f"{block}.mlp.down_proj.weight": (width, inner),
            f"{block}.input_layernorm.weight": (width,),
            f"{block}.post_attention_layernorm.weight": (width,),
        }
    return shapes


def causal_weights(
    model: str,
    head: str,
    sizes: CausalSizes,
    tensors: dict[str, mx.array],
    dtype: mx.Dtype,
    *,
    epsilon: float,
    theta: float,
) -> CausalWeights:
    """tensors: those of `causal_shapes`, which are taken out of it. head: the name of the layer that makes
    logits; without such a tensor the embedding makes them. epsilon: of every norm; theta: the rotation's
    base."""
    source = Tensors(tensors, dtype)
    rows = tensors.pop(f"{model}.embed_tokens.weight")
    stored, bias = tensors.pop(f"{head}.weight", None), tensors.pop(f"{head}.bias", None)
    # In 32 bit: logits in 16 tie, and a beam ranks by their differences.
    exact = (rows if stored is None else stored).astype(mx.float32)
    table = pack(tokens_last(exact, None if bias is None else bias.astype(mx.float32)))
    embedding = None if stored is None else rows.astype(dtype)
    del rows, stored, exact

    def norm(name: str, scale: float = 1.0) -> RmsNorm:
        return RmsNorm(source.array(f"{model}.{name}.weight") * scale, epsilon)

    def block(at: int) -> CausalBlock:
        name = f"layers.{at}"
        attention, mlp = f"{model}.{name}.self_attn", f"{model}.{name}.mlp"
        block = CausalBlock(
            GroupedAttention(
                norm(f"{name}.input_layernorm"),
                source.product(*(f"{attention}.{way}_proj" for way in "qkv")),
                norm(f"{name}.self_attn.q_norm", float(sizes.head_dim**-0.5)),
                norm(f"{name}.self_attn.k_norm"),
                source.product(f"{attention}.o_proj"),
            ),
            GatedMlp(
                norm(f"{name}.post_attention_layernorm"),
                source.product(f"{mlp}.gate_proj", f"{mlp}.up_proj"),
                source.product(f"{mlp}.down_proj"),
            ),
        )
        return block.pack()

    return CausalWeights(
        table=table,
        blocks=tuple(block(at) for at in range(sizes.num_hidden_layers)),
        norm=norm("norm"),
        heads=sizes.num_attention_heads,
        groups=sizes.num_key_value_heads,
        width=sizes.head_dim,
        theta=theta,
        embedding=embedding,
    )
