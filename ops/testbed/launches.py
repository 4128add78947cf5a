"""How many kernels a computation launches on an Apple GPU, counted on any machine.

MLX traces a function into its graph; each of its primitives is a launch or a view of memory. Custom kernels
are traced as Metal's, and what `mx.fast` does in one launch there, which a CPU takes apart, counts as one.
Counted as launches: two for a pad (filling, copying), one an input of a concatenation, and the copy of what is reshaped while it
lies transposed. Constants, and what is made of them alone, are left out: they are computed once.
"""

from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any
from unittest.mock import patch

import mlx.core as mx

from kernels.runtime.device import use_backend
