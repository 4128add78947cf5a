"""OpenAI's names of a block's tensors. Keys have no bias."""

from worker.models.attention.blocks import AttentionNames, BlockNames, MlpNames

BLOCK = BlockNames(
    AttentionNames("attn_ln", "attn.query", "attn.key", "attn.value", "attn.out", key_bias=False),
    AttentionNames(
        "cross_attn_ln",
        "cross_attn.query",
        "cross_attn.key",
        "cross_attn.value",
        "cross_attn.out",
        key_bias=False,
    ),
    MlpNames("mlp_ln", "mlp.0", "mlp.2"),
)
