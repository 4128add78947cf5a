"""The attention decoder's contracts as parameters of a test."""

import pytest

from kernels.contracts.attention import attention_cases

CASES = list(attention_cases())

every_case = pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
