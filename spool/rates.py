"""What an engine hour of a machine costs: a rent, or a purchase over its years and the power it draws.

A price may change from a day on; which one holds is asked when engine time is billed, so that what was billed
keeps its price. Pure; the arithmetic of bills is in `spool.costs`.
"""

from collections.abc import Mapping
from datetime import date
from decimal import Decimal
from typing import Annotated

from pydantic import BaseModel, ConfigDict, Discriminator, Field, Tag

HOURS_A_YEAR = Decimal(8766)
_MICRO = Decimal("0.000001")

Amount = Annotated[Decimal, Field(ge=0)]


class Machine(BaseModel):
    """A machine that was bought: written off evenly over its years, all hours alike, and drawing power."""

    model_config = ConfigDict(frozen=True, extra="forbid")

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
    if isinstance(value, (dict, Machine)):
        return "machine"
    return "dated" if isinstance(value, (list, tuple)) else "rent"


Price = Annotated[Annotated[Decimal, Tag("rent")] | Annotated[Machine, Tag("machine")], Discriminator(_kind)]


class Dated(BaseModel):
    """A price that holds from a UTC day on, until the next one."""

    model_config = ConfigDict(frozen=True, extra="forbid", validate_by_name=True, validate_by_alias=True)

    since: date = Field(alias="from")
    price: Price


Rate = Annotated[
    Annotated[Decimal, Tag("rent")]
    | Annotated[Machine, Tag("machine")]
    | Annotated[tuple[Dated, ...], Tag("dated")],
    Discriminator(_kind),
]
"""A rent per hour, a machine, or prices by day."""


class CloudPrices(BaseModel):
    """What others charge for an hour of audio, and when that was so."""

    model_config = ConfigDict(frozen=True, extra="forbid")

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
"""List prices as https://apiscout.dev/guides/speech-to-text-api-comparison-2026 gives them; set your own."""


def price_on(rate: Rate, day: date) -> Decimal | None:
    """The price of an hour on that day; None before the first one."""
    if isinstance(rate, tuple):
        begun = [one for one in rate if one.since <= day]
        if not begun:
            return None
        return price_on(max(begun, key=lambda one: one.since).price, day)
    return rate.per_hour if isinstance(rate, Machine) else rate


def prices_in(rate: Rate) -> list[Decimal]:
    """Every price that the rate can come to."""
    if isinstance(rate, tuple):
        return [price for one in rate for price in prices_in(one.price)]
    return [rate.per_hour if isinstance(rate, Machine) else rate]


def price_of(worker: str, pool: str, rate_card: Mapping[str, Rate], default: Decimal, day: date) -> Decimal:
    """The price per engine hour of a worker on that day: its own, else its pool's, else the default."""
    for name in (worker, pool):
        price = price_on(rate_card[name], day) if name in rate_card else None
        if price is not None:
            return price
    return default
