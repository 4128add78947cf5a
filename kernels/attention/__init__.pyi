from .cross_attention import (
    cross_attention_reference as cross_attention_reference,
    plain_keys as plain_keys,
    tile_keys as tile_keys,
)
from .dtw import dtw_reference as dtw_reference
from .full_attention import full_attention_reference as full_attention_reference
from .rules import (
    BestTokens as BestTokens,
    forbidden_bits as forbidden_bits,
    rules_topk as rules_topk,
    rules_topk_reference as rules_topk_reference,
)
from .self_attention import (
    places_of_parents as places_of_parents,
    self_attention_reference as self_attention_reference,
)
