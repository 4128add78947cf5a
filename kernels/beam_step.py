"""The beam's inner step by kernel where one runs, else by its plain-MLX reference.

`expand` and `settle` have the contracts of `kernels.expand.expand` and `kernels.settle.settle`, their
references. The kernel of `expand` reads the logits once: no sort of labels, no sort of candidates, one
threadgroup an utterance. Scores differ from the reference by the order of the sum under the logarithm
(within 2e-6 relative), so two candidates closer than that may change places; equal logits never do. An
utterance's results are the same bits in any batch, and a NaN in its rows fails it alone. Scores on the grid
of `kernels.fixed` may then differ from the reference's by a step of it.
"""

import mlx.core as mx

from kernels.device import launch
from kernels.expand import Bonus, Expansion
from kernels.expand import expand as expand_reference
from kernels.settle import Beam, Field, Limits
from kernels.settle import settle as settle_reference
from kernels.text import read_kernel

EXPAND = read_kernel("expand", "logits bonus alphas frames scores status", "o_gains o_choice o_sound")
SETTLE = read_kernel(
    "settle",
    "gains choice finite slots_before tokens common sound lengths limits",
    "o_scores o_slots o_tokens o_common o_sound",
)

# What a threadgroup of an Apple GPU can hold (32 KiB), less what else the kernel keeps there.
_CANDIDATE_BYTES = 31 * 1024
_MOST_SIMDGROUPS = 16


def expand(
    logits: mx.array,
    durations: mx.array | None,
    scores: mx.array,
    status: mx.array,
    bonus: Bonus | None = None,
    *,
    fixed: bool = False,
) -> Expansion:
    """Continue [B, K] hypotheses and keep the best K of each utterance: as `kernels.expand.expand`.

    Beams whose candidates outgrow a threadgroup's memory (K = 32 with more than 6 durations) take the
    reference.
    """
    batch, beam, width = logits.shape
    frames = mx.zeros((1,), dtype=mx.int32) if durations is None else durations.astype(mx.int32)
    choices = len(frames)
    ranks = min(beam, width if durations is None else width - choices)
    made = None
    if 4 * beam * ranks * (choices + 1) + 20 * beam <= _CANDIDATE_BYTES:
        gains = mx.zeros((8,)) if bonus is None else bonus.gains
        alphas = mx.zeros((8,)) if bonus is None else bonus.alphas
        made = launch(
            EXPAND,
            [logits, gains, alphas, frames, scores, status],
            [((3, batch, beam), mx.float32), ((3, batch, beam), mx.int32), ((batch,), mx.bool_)],
            groups=batch,
            simdgroups=min(beam, _MOST_SIMDGROUPS),
            template=(
                ("K", beam),
                ("R", ranks),
                ("D", choices),
                ("TIMED", durations is not None),
                ("FUSED", bonus is not None),
                ("WEIGHTED", bonus is not None and bonus.weighted),
                ("EARLY", bonus is not None and bonus.early),
                ("FIXED", fixed),
            ),
        )
    if made is None:
        return expand_reference(logits, durations, scores, status, bonus, fixed=fixed)
    return Expansion(*made)


def settle(grown: Expansion, beam: Beam, limits: Limits) -> Beam:
    """The beam after an expansion: contract in `kernels.settle.settle`; merged scores within 1e-6 of it."""
    batch, slots = beam.scores.shape
    made = launch(
        SETTLE,
        [
            grown.gains,
            grown.choice,
            grown.finite,
            beam.slots,
            beam.tokens,
            beam.common,
            beam.sound,
            limits.lengths,
            limits.bounds,
        ],
        [
            ((batch, slots), mx.float32),
            ((len(Field), batch, slots), mx.int32),
            (beam.tokens.shape, mx.int32),
            (beam.common.shape, mx.int32),
            ((batch,), mx.bool_),
        ],
        groups=batch,
        template=(("K", slots), ("BLANK", limits.blank), ("TIMED", limits.timed), ("FIXED", limits.fixed)),
    )
    return settle_reference(grown, beam, limits) if made is None else Beam(*made)
