from .ctc_beam import CtcBacktrace as CtcBacktrace, ctc_beam_reference as ctc_beam_reference
from .ctc_prefix import ctc_prefix_beam as ctc_prefix_beam, ctc_prefix_reference as ctc_prefix_reference
from .expand import (
    Bonus as Bonus,
    Expansion as Expansion,
    FINISHED as FINISHED,
    FORCED as FORCED,
    expand_reference as expand_reference,
)
from .fixed_point import (
    grid_sum as grid_sum,
    number_on_grid as number_on_grid,
    on_grid as on_grid,
    rebase as rebase,
    totals as totals,
)
from .prefix import (
    empty_prefixes as empty_prefixes,
    extend as extend,
    grow as grow,
    same_tokens as same_tokens,
)
from .recombine import (
    Beam as Beam,
    Field as Field,
    Limits as Limits,
    empty_beam as empty_beam,
    merge as merge,
    recombine_reference as recombine_reference,
)
from .topk import top_k as top_k
from .wfst import grid_costs as grid_costs, wfst_links as wfst_links, wfst_tokens as wfst_tokens
