"""What reading a model's weights takes, quantised or not."""

import re

WHOLE = 16
"""Bits of a weight that is not quantised."""
GROUP = 64
"""Quantised weights that share a scale and a bias of 16 bits each."""
_NAME = re.compile(r"-(8|4)bit$")


def bits_in_name(model: str) -> int:
    """The bits of a weight by the model's name, as the catalogue makes it."""
    quantised = _NAME.search(model)
    return int(quantised[1]) if quantised else WHOLE


def read_values(weights: int, bits: int) -> float:
    """What reading so many weights takes, in numbers of 16 bits."""
    return float(weights) if bits == WHOLE else weights * (bits / WHOLE + 2 / GROUP)
