"""The compiled LSTM over windows against the same in double precision, and alone against in company."""

import numpy as np
import pytest
from numpy.typing import NDArray

from kernels.nn import Layer, LstmWindows, can_run
from kernels.runtime import compiler

pytestmark = pytest.mark.skipif(
    compiler() is None or not can_run(), reason="needs a C++ compiler and an x86-64 CPU with AVX2"
)

Floats = NDArray[np.float32]


def layers_of(*widths: int, size: int = 32) -> list[Layer]:
    chance = np.random.default_rng(3)

    def values(*shape: int) -> Floats:
        return chance.uniform(-0.6, 0.6, shape).astype(np.float32)

    return [(values(4 * size, width), values(4 * size, size), values(4 * size)) for width in widths]


def windows_of(*lengths: int, width: int = 12) -> list[Floats]:
    chance = np.random.default_rng(5)
    return [chance.standard_normal((length, width)).astype(np.float32) for length in lengths]


def reference(layers: list[Layer], window: Floats) -> NDArray[np.float64]:
    """The last layer's last output, gates i, f, g, o."""
    rows: NDArray[np.float64] = window.astype(np.float64)
    for entering, recurrent, bias in layers:
        output, memory, outputs = np.zeros(recurrent.shape[1]), np.zeros(recurrent.shape[1]), []
        for row in rows:
            i, f, g, o = np.split(entering @ row + recurrent @ output + bias, 4)
            i, f, o = (0.5 + 0.5 * np.tanh(gate / 2) for gate in (i, f, o))
            memory = f * memory + i * np.tanh(g)
            output = o * np.tanh(memory)
            outputs.append(output)
        rows = np.stack(outputs)
    return rows[-1]


def test_outputs_are_the_reference_s_whatever_the_lengths() -> None:
    layers = layers_of(12, 32, 32)
    windows = windows_of(*(1 + 7 * index % 40 for index in range(53)))
    outputs = LstmWindows.pack(layers).last_outputs(windows)
    expected = np.stack([reference(layers, window) for window in windows])
    np.testing.assert_allclose(outputs, expected, rtol=0, atol=2e-6)


def test_a_window_alone_has_the_bits_that_it_has_among_others() -> None:
    network = LstmWindows.pack(layers_of(12, 32))
    windows = windows_of(9, 40, 3, 40, 17, *[25] * 60)
    together = network.last_outputs(windows)
    for index in (0, 1, 2, 4, 64):
        np.testing.assert_array_equal(network.last_outputs([windows[index]])[0], together[index])
    np.testing.assert_array_equal(network.last_outputs(windows[::-1]), together[::-1])


def test_gates_far_from_zero_are_saturated() -> None:
    (entering, recurrent, bias), *_ = layers_of(12)
    layer = entering * np.float32(200), recurrent, bias
    windows = windows_of(30, 30)
    outputs = LstmWindows.pack([layer]).last_outputs(windows)
    assert np.isfinite(outputs).all()
    np.testing.assert_allclose(outputs, [reference([layer], window) for window in windows], rtol=0, atol=1e-4)
