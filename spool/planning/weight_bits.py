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


class Weighed:
    """What reading the weights of a model takes, in numbers of 16 bits, of those that may be quantised."""

    bits: int

    @property
    def job_share(self) -> float:
        """What a job keeps of its engine's speed, measured: short recordings through a worker beside
        `transcribe` (ops/bench/LOG.md, 2026-11-24: the median of ten rounds, 0.74 to 0.92)."""
        return 0.89

    @property
    def encoder_weights(self) -> int:
        """Matrices of the encoder."""
        raise NotImplementedError

    @property
    def encoder_kept(self) -> int:
        """Those of them that are never quantised."""
        return 0

    @property
    def step_weights(self) -> int:
        """What one step of the search reads."""
        raise NotImplementedError

    @property
    def step_kept(self) -> int:
        """Those of them that are never quantised, such as the token table."""
        raise NotImplementedError

    @property
    def encoder_values(self) -> float:
        """What reading the encoder's weights takes."""
        return read_values(self.encoder_weights - self.encoder_kept, self.bits) + self.encoder_kept

    @property
    def step_values(self) -> float:
        """What reading those of a step takes."""
        return read_values(self.step_weights - self.step_kept, self.bits) + self.step_kept
