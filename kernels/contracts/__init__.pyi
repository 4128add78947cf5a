from .attention import attention_cases as attention_cases
from .case import (
    Case as Case,
    DTYPES as DTYPES,
    TOLERANCE as TOLERANCE,
    lengths_of as lengths_of,
    run_case as run_case,
    same_bits as same_bits,
)
from .nn import CASES as CASES
from .search import SETTLED as SETTLED, arcs_of as arcs_of, recombine_inputs as recombine_inputs
