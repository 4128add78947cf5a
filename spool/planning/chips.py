"""Chips by name: peak rate, bandwidth, price and power as published, each with where the figures are from.

`teraflops` are 16-bit on the GPU; the neural engine is not counted, since MLX does not use it. Prices are of
the cheapest machine with the chip at its launch, before tax; watts are the machine's maximum. None if no
figure was found. Knows no model.
"""

import re
from dataclasses import dataclass, replace

from spool.errors import InvalidRequest

SOURCE = "rlindsey2/sunkcost, read 2026-10; Apple's data sheets"
FROM_MEMORY = "from memory, unverified"
PROJECTED = "1,024 operations a core and cycle, projected (gpu-forge #15), unmeasured"
STAND_IN = "watts of the chip before it"


@dataclass(frozen=True, slots=True)
class Chip:
    """`teraflops` 16-bit, `gigabytes` a second, `price` in dollars, `watts` at most. `notes` say which
    figures are not published ones."""

    name: str
    cores: int
    teraflops: float
    gigabytes: float
    price: float | None = None
    watts: float | None = None
    machine: str = ""
    source: str = SOURCE
    notes: tuple[str, ...] = ()


CHIPS: tuple[Chip, ...] = (
    Chip("M1", 8, 2.6, 68, 699, 39, "Mac mini", FROM_MEMORY),
    Chip("M1 Max", 32, 10.4, 400, 1999, 115, "Mac Studio", FROM_MEMORY),
    Chip("M2 Pro", 19, 6.8, 200, source=FROM_MEMORY),
    Chip("M2 Max", 38, 13.6, 400, source=FROM_MEMORY),
    Chip("M2 Ultra", 76, 27.2, 800, 3999, 295, "Mac Studio", FROM_MEMORY),
    Chip("M3", 10, 4.1, 100),
    Chip("M3 Max", 40, 16.4, 400),
    Chip("M3 Ultra", 60, 21.3, 819, 3999, 270, "Mac Studio"),
    Chip("M4", 10, 4.6, 120, 599, 65, "Mac mini"),
    Chip("M4 Pro", 16, 7.4, 273, 1399, 140, "Mac mini"),
    Chip("M4 Max", 40, 18.4, 546, 2499, 145, "Mac Studio"),
    Chip("M5", 10, 16.0, 153, notes=(PROJECTED,)),
    Chip("M5 Pro", 16, 26.0, 307, 1699, 140, "Mac mini", notes=(PROJECTED, STAND_IN)),
    Chip("M5 Max", 40, 65.0, 614, 3099, 145, "Mac Studio", notes=(PROJECTED, STAND_IN)),
    Chip("M5 Ultra", 64, 103.0, 1200, 5499, 270, "Mac Studio", notes=(PROJECTED, STAND_IN)),
)
_BY_NAME = {chip.name.lower(): chip for chip in CHIPS}
_PART = re.compile(r"(?:(\d+)\s*(?:\u00d7|x|\*)\s*)?(.+?)", re.IGNORECASE)
THIS_MACHINE = "this machine"
FLEET_MAX = 100_000


def chip_named(name: str, gpu_cores: int | None = None) -> Chip | None:
    """The chip that a machine calls itself by (`Apple M4 Pro`), or None. With other GPU cores than the
    table's its rate is scaled by them; its bandwidth is not."""
    plain = re.sub(r"\s+", " ", name.strip().lower()).removeprefix("apple ").removeprefix("mac ")
    chip = _BY_NAME.get(plain)
    if chip is None or gpu_cores is None or gpu_cores == chip.cores:
        return chip
    scaled = round(chip.teraflops * gpu_cores / chip.cores, 3)
    note = f"the rate of {chip.cores} GPU cores, scaled"
    return replace(chip, cores=gpu_cores, teraflops=scaled, notes=(*chip.notes, note))


def parse_fleet(text: str) -> tuple[tuple[int, str], ...]:
    """`4xM4, 1 x M3 Ultra` (or with a times sign) as counts and names, the names as the table has them; `this
    machine` stays. Raises InvalidRequest for a chip that the table does not have."""
    fleet: list[tuple[int, str]] = []
    for part in filter(None, (piece.strip() for piece in text.split(","))):
        match = _PART.fullmatch(part)
        assert match is not None  # the second group takes anything
        count, name = int(match[1] or 1), match[2].strip()
        if not 1 <= count <= FLEET_MAX:
            raise InvalidRequest(f"A fleet has 1 to {FLEET_MAX} of a machine, not {count} ({part!r}).")
        if name.lower() == THIS_MACHINE:
            fleet.append((count, THIS_MACHINE))
            continue
        chip = chip_named(name)
        if chip is None:
            known = ", ".join(chip.name for chip in CHIPS)
            raise InvalidRequest(f"The chip {name!r} is not in the table; use one of {known}.")
        fleet.append((count, chip.name))
    if not fleet:
        raise InvalidRequest("A fleet is a list such as '4xM4, 1xM3 Ultra', or 'this machine'.")
    return tuple(fleet)
