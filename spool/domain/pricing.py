"""The arithmetic of costs: the price of an engine hour, money, and the real-time factor.

Engine time is whole nanoseconds, a price is whole millionths of the currency per engine hour, money is whole
billionths (nano-units). The one rounding rule: a cost line's money is its nanoseconds times its price,
rounded once, half to even, to a nano-unit; every total is a sum of lines, so all groupings of a period agree
to the last digit. A price is a rent, or a purchase with its power, and may change from a day on; written
lines keep their price. Pure: no SQL and no clock.
"""

from collections.abc import Mapping
from datetime import date
from decimal import Decimal
from typing import Annotated

from pydantic import BaseModel, ConfigDict, Discriminator, Field, Tag

from spool.errors import SettingsError

SAMPLE_RATE = 16_000
NANOS_PER_SECOND = 1_000_000_000
NANOS_PER_UNIT = 1_000_000_000
MICROS_PER_UNIT = 1_000_000
# nanoseconds times micro-units per hour, divided by this, are nano-units
_DIVISOR = 3600 * NANOS_PER_SECOND * MICROS_PER_UNIT // NANOS_PER_UNIT


def cost_nanos(engine_ns: int, price_per_hour_micros: int) -> int:
    """The cost of `engine_ns` of engine time, in nano-units of the currency, rounded half to even."""
    whole, rest = divmod(engine_ns * price_per_hour_micros, _DIVISOR)
    twice = 2 * rest
    return whole + (twice > _DIVISOR or (twice == _DIVISOR and whole % 2 == 1))


def price_micros(price_per_hour: Decimal) -> int:
    """A price per hour as whole millionths. Raises SettingsError if negative or finer than a millionth."""
    micros = price_per_hour * MICROS_PER_UNIT
    if not micros.is_finite() or micros < 0 or micros != micros.to_integral_value():
        raise SettingsError(
            f"A price per hour must be 0 or more with at most 6 decimals, not {price_per_hour}."
        )
    return int(micros)


def money(nanos: int) -> Decimal:
    """Nano-units as an amount of the currency, exactly."""
    return Decimal(nanos).scaleb(-9)


def rtfx(audio_seconds: float, engine_seconds: float) -> float | None:
    """Inverse real-time factor: seconds of audio per second of engine. None without engine time."""
    return audio_seconds / engine_seconds if engine_seconds > 0 else None


HOURS_A_YEAR = Decimal(8766)
_MICRO = Decimal("0.000001")

Amount = Annotated[Decimal, Field(ge=0)]


class PurchasedMachine(BaseModel):
    """A purchased machine: depreciated evenly over all hours of its years, plus the power it draws."""

    model_config = ConfigDict(frozen=True, extra="forbid", defer_build=True)

    purchase: Amount
    years: Annotated[Decimal, Field(gt=0)]
    watts: Amount = Decimal(0)
    price_per_kwh: Amount = Decimal(0)

    @property
    def per_hour(self) -> Decimal:
        """The price of an hour, to a millionth."""
        power = self.watts / 1000 * self.price_per_kwh
        return (self.purchase / (self.years * HOURS_A_YEAR) + power).quantize(_MICRO)


def _kind(value: object) -> str:
    if isinstance(value, (dict, PurchasedMachine)):
        return "machine"
    return "dated" if isinstance(value, (list, tuple)) else "rent"


Price = Annotated[
    Annotated[Decimal, Tag("rent")] | Annotated[PurchasedMachine, Tag("machine")], Discriminator(_kind)
]


class Dated(BaseModel):
    """A price that applies from a UTC day until the next price."""

    model_config = ConfigDict(
        frozen=True, extra="forbid", validate_by_name=True, validate_by_alias=True, defer_build=True
    )

    since: date = Field(alias="from")
    price: Price


Rate = Annotated[
    Annotated[Decimal, Tag("rent")]
    | Annotated[PurchasedMachine, Tag("machine")]
    | Annotated[tuple[Dated, ...], Tag("dated")],
    Discriminator(_kind),
]
"""A rent per hour, a machine, or prices by day."""


class CloudPrices(BaseModel):
    """The prices of cloud services for an hour of audio, and their date."""

    model_config = ConfigDict(frozen=True, extra="forbid", defer_build=True)

    as_of: date
    currency: str = "USD"
    per_audio_hour: dict[str, Amount]


CLOUDS = CloudPrices(
    as_of=date(2026, 3, 16),
    per_audio_hour={
        "OpenAI gpt-4o-mini-transcribe": Decimal("0.18"),
        "Google Chirp 3, dynamic batch": Decimal("0.24"),
        "OpenAI whisper-1": Decimal("0.36"),
        "AssemblyAI, recorded": Decimal("0.37"),
        "Deepgram Nova-3": Decimal("0.462"),
        "Google Chirp 3": Decimal("0.96"),
    },
)
"""List prices from https://apiscout.dev/guides/speech-to-text-api-comparison-2026; set your own."""


def price_on(rate: Rate, day: date) -> Decimal | None:
    """The price of an hour on that day; None before the first price."""
    if isinstance(rate, tuple):
        begun = [dated for dated in rate if dated.since <= day]
        if not begun:
            return None
        return price_on(max(begun, key=lambda dated: dated.since).price, day)
    return rate.per_hour if isinstance(rate, PurchasedMachine) else rate


def prices_in(rate: Rate) -> list[Decimal]:
    """Every price in the rate."""
    if isinstance(rate, tuple):
        return [price for dated in rate for price in prices_in(dated.price)]
    return [rate.per_hour if isinstance(rate, PurchasedMachine) else rate]


def price_of(worker: str, pool: str, rate_card: Mapping[str, Rate], default: Decimal, day: date) -> Decimal:
    """The price per engine hour of a worker on that day: its own, else its pool's, else the default."""
    for name in (worker, pool):
        price = price_on(rate_card[name], day) if name in rate_card else None
        if price is not None:
            return price
    return default
