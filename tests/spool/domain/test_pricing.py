"""The ledger's arithmetic, exactly."""

from datetime import date
from decimal import Decimal
from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from spool.domain import Dated, PurchasedMachine, Rate, cost_nanos, money, price_micros, price_of, rtfx
from spool.errors import SettingsError

HOUR_NS = 3600 * 10**9
DAY = date(2026, 11, 21)


@given(st.integers(0, 10**17), st.integers(0, 10**10))
def test_money_is_the_exact_product_rounded_once_half_to_even(engine_ns: int, price: int) -> None:
    exact = Fraction(engine_ns, HOUR_NS) * Fraction(price, 10**6) * 10**9
    assert cost_nanos(engine_ns, price) == round(exact)


@pytest.mark.parametrize(("engine_ns", "nanos"), [(1800, 0), (5400, 2), (9000, 2), (1801, 1), (1799, 0)])
def test_halves_go_to_even(engine_ns: int, nanos: int) -> None:
    assert cost_nanos(engine_ns, 10**6) == nanos


def test_an_hour_costs_its_price() -> None:
    assert money(cost_nanos(HOUR_NS, price_micros(Decimal("0.123456")))) == Decimal("0.123456")
    assert money(cost_nanos(HOUR_NS, 0)) == 0


def test_a_rate_is_the_workers_own_then_its_pools_then_the_default() -> None:
    card: dict[str, Rate] = {"mini-3": Decimal(3), "metal": Decimal(2)}
    assert price_of("mini-3", "metal", card, Decimal(1), DAY) == 3
    assert price_of("mini-4", "metal", card, Decimal(1), DAY) == 2
    assert price_of("box", "cpu", card, Decimal(1), DAY) == 1


def test_a_machine_costs_its_purchase_over_its_years_and_its_power() -> None:
    mini = PurchasedMachine(
        purchase=Decimal("876.6"), years=Decimal(1), watts=Decimal(50), price_per_kwh=Decimal("0.30")
    )
    assert mini.per_hour == Decimal("0.115000")
    assert price_of("mini-3", "metal", {"mini-3": mini}, Decimal(1), DAY) == Decimal("0.115")


def test_a_price_holds_from_its_day_on() -> None:
    def dated(day: int, price: int) -> Dated:
        return Dated(since=date(2026, 11, day), price=Decimal(price))

    card: dict[str, Rate] = {"metal": (dated(20, 3), dated(10, 2))}
    prices = [price_of("mini", "metal", card, Decimal(1), date(2026, 11, day)) for day in (9, 10, 19, 20, 30)]
    assert prices == [1, 2, 2, 3, 3]


@pytest.mark.parametrize("price", ["-1", "0.0000001", "NaN", "Infinity"])
def test_a_price_that_cannot_be_kept_exactly_is_refused(price: str) -> None:
    with pytest.raises(SettingsError, match="price"):
        price_micros(Decimal(price))


def test_the_real_time_factor_is_audio_per_engine_time() -> None:
    assert rtfx(3600.0, 36.0) == 100.0
    assert rtfx(1.0, 0.0) is None
