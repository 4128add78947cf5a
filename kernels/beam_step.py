"""The beam's inner step by kernel where one runs, else by its plain-MLX reference.

`expand` and `merge` have the contracts of `kernels.expand.expand` and `kernels.merge.merge`, their
references. The kernel of `expand` reads the logits once: no sort of labels, no sort of candidates, one
threadgroup an utterance. Scores differ from the reference by the order of the sum under the logarithm
(within 2e-6 relative), so two candidates closer than that may change places; equal logits never do. An
utterance's results are the same bits in any batch, and a NaN in its rows fails it alone.
"""

import mlx.core as mx

from kernels.device import Output, launch, launch_rows
from kernels.expand import Expansion
from kernels.expand import expand as expand_reference
from kernels.merge import merge as merge_reference
from kernels.text import read_kernel

EXPAND = read_kernel(
    "expand",
    "labels spread frames scores finished forced",
    "o_scores o_parents o_labels o_frames o_label_scores o_sound",
)
MERGE = read_kernel("merge", "scores same", "y")

# What a threadgroup of an Apple GPU can hold (32 KiB), less what else the kernel keeps there.
_CANDIDATE_BYTES = 31 * 1024
_MOST_SIMDGROUPS = 16


def expand(
    label_logits: mx.array,
    duration_logits: mx.array | None,
    durations: mx.array | None,
    scores: mx.array,
    finished: mx.array,
    forced: mx.array,
) -> Expansion:
    """Continue [B, K] hypotheses and keep the best K of each utterance: as `kernels.expand.expand`.

    Beams whose candidates outgrow a threadgroup's memory (K = 32 with more than 5 durations) take the
    reference.
    """
    batch, beam, width = label_logits.shape
    ranks = min(beam, width)
    if duration_logits is None or durations is None:
        spread, frames = mx.zeros((batch, beam, 1)), mx.zeros((1,), dtype=mx.int32)
    else:
        spread, frames = duration_logits, durations.astype(mx.int32)
    choices = spread.shape[-1]
    made = None
    if 4 * beam * ranks * (choices + 2) <= _CANDIDATE_BYTES:
        kinds = (mx.float32, mx.int32, mx.int32, mx.int32, mx.float32)
        outputs: list[Output] = [((batch, beam), kind) for kind in kinds]
        made = launch(
            EXPAND,
            [label_logits, spread, frames, scores, finished, forced],
            [*outputs, ((batch,), mx.bool_)],
            groups=batch,
            simdgroups=min(beam, _MOST_SIMDGROUPS),
            template=(("K", beam), ("R", ranks), ("D", choices)),
        )
    if made is None:
        return expand_reference(label_logits, duration_logits, durations, scores, finished, forced)
    return Expansion(*made)


def merge(scores: mx.array, same: mx.array) -> mx.array:
    """Add equal hypotheses onto their best: contract in `kernels.merge.merge`; sums within 1e-6 of it."""
    made = launch_rows(MERGE, [scores, same], [(scores.shape, mx.float32)], rows=scores.shape[0])
    return merge_reference(scores, same) if made is None else made[0]
