"""What is stored of a measured quality."""

import pytest

from spool.domain import Quality, quality_of


def test_a_measurement_is_read_as_it_was_written() -> None:
    quality = Quality(
        21, 20, 0.05, 0.048, 12.5, "float16", "Device(gpu, 0)", "2026-11-22T19:00:00+00:00", 0.4
    )
    assert quality_of(quality.document()) == quality
    assert quality.qoi == pytest.approx(20 / 21)


@pytest.mark.parametrize("change", [{"recordings": 0, "no_worse": 0}, {"no_worse": 22}, {"no_worse": -1}])
def test_a_share_of_nothing_is_refused(change: dict[str, int]) -> None:
    document = Quality(21, 21, 0.0, 0.0, 1.0, "float32", "cpu", "2026-11-22T19:00:00+00:00").document()
    with pytest.raises(ValueError, match="no recordings"):
        quality_of(document | change)
