"""The arithmetic of the ledger: rates, money and the real-time factor. Pure; knows no SQL and no clock.

Units: engine time is whole nanoseconds, a price is whole millionths of the currency per engine hour, money is
whole billionths (nano-units) of the currency. The one rounding rule: a cost line's money is its nanoseconds
times its price, rounded once, half to even, to a nano-unit. Every total is a sum of lines, so all groupings
of a period agree to the last digit. A day's price change opens new lines; written lines never change their
price.
"""

from decimal import Decimal

from spool.errors import SettingsError

SAMPLE_RATE = 16_000
NANOS_PER_SECOND = 1_000_000_000
NANOS_PER_UNIT = 1_000_000_000
MICROS_PER_UNIT = 1_000_000
# nanoseconds times micro-units per hour, divided by this, are nano-units
_DIVISOR = 3600 * NANOS_PER_SECOND * MICROS_PER_UNIT // NANOS_PER_UNIT


def cost_nanos(engine_ns: int, price_per_hour_micros: int) -> int:
    """What `engine_ns` of engine time costs, in nano-units of the currency, rounded half to even."""
    whole, rest = divmod(engine_ns * price_per_hour_micros, _DIVISOR)
    twice = 2 * rest
    return whole + (twice > _DIVISOR or (twice == _DIVISOR and whole % 2 == 1))


def price_micros(price_per_hour: Decimal) -> int:
    """A price per hour as whole millionths. Raises SettingsError if negative or finer than a millionth."""
    micros = price_per_hour * MICROS_PER_UNIT
    if not micros.is_finite() or micros < 0 or micros != micros.to_integral_value():
        raise SettingsError(
            f"A price per hour has to be 0 or more with at most 6 decimals, not {price_per_hour}."
        )
    return int(micros)


def money(nanos: int) -> Decimal:
    """Nano-units as an amount of the currency, exactly."""
    return Decimal(nanos).scaleb(-9)


def rtfx(audio_seconds: float, engine_seconds: float) -> float | None:
    """Inverse real-time factor: seconds of audio per second of engine. None when the engine did nothing."""
    return audio_seconds / engine_seconds if engine_seconds > 0 else None
