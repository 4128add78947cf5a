"""The attention decoder's kernels have the words of MLX (see tests/kernels/test_text.py)."""

from pathlib import Path

import pytest

from kernels.text import metal_text
from tests.kernels.attention.attention_cases import every_case
from tests.kernels.cases import DTYPES, Case, recorded
from tests.kernels.test_text import text_of_mlx


@every_case
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("batch", [1, 9])
def test_an_attention_kernel_has_the_words_of_mlx(
    case: Case, dtype: str, batch: int, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    with recorded(monkeypatch) as launches:
        case.run(*case.make(batch, DTYPES[dtype]))
    (launched,) = launches
    _, ours = metal_text(launched.kernel, launched.arguments, launched.made, launched.template)
    assert ours.strip() == text_of_mlx(launched, tmp_path).strip()
