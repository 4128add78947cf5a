"""The beam's inner step by kernel: the reference's choices at every size, and nothing lost to bad rows."""

from collections.abc import Iterator
from dataclasses import dataclass, replace

import mlx.core as mx
import numpy as np
import pytest

from kernels.contracts import SETTLED, lengths_of, recombine_inputs
from kernels.runtime import use_backend
from kernels.search import FINISHED, FORCED, Beam, Bonus, Expansion, expand_reference
from kernels.search import recombine_reference as recombine_reference
from kernels.search.expand import RUNS, expand
from kernels.search.recombine import recombine as settle
from ops.testbed.kernel_cases import TESTED, recorded

DURATIONS = [0, 1, 2, 3, 4]
# Candidates closer than this may change places: the two forms sum under the logarithm in another order.
NEAR = 1e-4


FUSIONS = ["none", "late", "early", "late-weighted", "early-weighted"]


@dataclass(frozen=True)
class Step:
    """Inputs of one expansion."""

    logits: mx.array
    durations: mx.array | None
    scores: mx.array
    status: mx.array
    bonus: Bonus | None = None

    def __iter__(self) -> Iterator[mx.array | Bonus | None]:
        return iter((self.logits, self.durations, self.scores, self.status, self.bonus))


def step(
    batch: int,
    beam: int,
    width: int,
    durations: list[int] | None = None,
    seed: int = 0,
    fusion: str = "none",
) -> Step:
    """About a fifth of the slots dead, finished or forced."""
    rng = np.random.default_rng((seed, batch, beam, width))
    places = width + len(durations or [])
    logits = rng.normal(size=(batch, beam, places)).astype(np.float32) * 3
    scores = (rng.normal(size=(batch, beam)) * 2 - 20).astype(np.float32)
    scores[rng.random((batch, beam)) < 0.2] = -np.inf
    finished, forced = rng.random((2, batch, beam)) < 0.2
    status = np.where(finished, FINISHED, np.where(forced, FORCED, RUNS)).astype(np.int32)
    bonus = None
    if fusion != "none":
        gains = mx.array(rng.normal(size=(batch, beam, width - 1)).astype(np.float32) * 2)
        alphas = mx.array(np.abs(rng.normal(size=batch)).astype(np.float32))
        bonus = Bonus(gains, alphas, "weighted" in fusion, "early" in fusion)
    table = None if durations is None else mx.array(durations, mx.int32)
    return Step(mx.array(logits), table, mx.array(scores), mx.array(status), bonus)


def flat(found: Expansion) -> list[np.ndarray]:
    """Score, parent, label, duration, the label's own score and what fusion gave, [B, K] each; soundness."""
    gains, choice = np.array(found.gains), np.array(found.choice)
    return [gains[0], *choice, gains[1], gains[2], np.array(found.finite)]


def both(inputs: Step, backend: str = TESTED) -> tuple[list[np.ndarray], list[np.ndarray]]:
    with use_backend(backend):
        made = flat(expand(*inputs))
    return made, flat(expand_reference(*inputs))


def assert_same_choices(made: list[np.ndarray], expected: list[np.ndarray]) -> None:
    alive = np.isfinite(expected[0])
    np.testing.assert_array_equal(np.isfinite(made[0]), alive)
    np.testing.assert_allclose(made[0][alive], expected[0][alive], rtol=2e-6, atol=2e-5)
    scores = np.where(alive, expected[0], -1e9)
    gaps = np.abs(np.diff(scores, axis=1, prepend=1e9, append=-2e9))
    sure = np.minimum(gaps[:, :-1], gaps[:, 1:]) > NEAR
    # The last place may be contested by a candidate that was not kept.
    sure[:, -1] &= ~alive[:, -1]
    for name, one, other in zip(("parent", "label", "duration"), made[1:4], expected[1:4], strict=True):
        np.testing.assert_array_equal(one[sure | ~alive], other[sure | ~alive], err_msg=name)
    labelled = sure & (expected[2] >= 0)
    for one, other in zip(made[4:6], expected[4:6], strict=True):
        np.testing.assert_allclose(one[labelled], other[labelled], rtol=2e-6, atol=2e-5)
    np.testing.assert_array_equal(made[6], expected[6])


@pytest.mark.parametrize("durations", [None, DURATIONS])
@pytest.mark.parametrize(
    ("beam", "width", "fusion"),
    [
        *[(*shape, "none") for shape in ((1, 2), (4, 1025), (8, 33), (16, 5), (32, 65), (32, 3))],
        *[(8, 33, fusion) for fusion in FUSIONS[1:]],
        (32, 65, "late-weighted"),
    ],
)
def test_the_kernel_chooses_what_the_reference_chooses(
    beam: int, width: int, fusion: str, durations: list[int] | None
) -> None:
    for batch, seed in ((1, 0), (9, 1), (9, 2)):
        assert_same_choices(*both(step(batch, beam, width, durations, seed, fusion)))


# Each of these is compiled twice; more kinds of fusion are among the cases of test_fused.py.
@pytest.mark.parametrize(
    ("durations", "fusion"),
    [(None, "none"), (None, "late"), (DURATIONS, "late"), (DURATIONS, "early-weighted")],
)
def test_one_lane_and_fibers_expand_to_the_same_bits(durations: list[int] | None, fusion: str) -> None:
    for width in (33, 70, 128):
        inputs = step(3, 8, width, durations, 4, fusion)
        made = []
        for backend in ("cpu", "fibers"):
            with use_backend(backend):
                made.append(flat(expand(*inputs)))
        for one, other in zip(*made, strict=True):
            np.testing.assert_array_equal(one, other)


def test_the_largest_beam_runs_as_a_kernel_and_a_larger_one_by_reference(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    with recorded(monkeypatch) as launches:
        expand(*step(2, 32, 1025, DURATIONS, fusion="late-weighted"))
        assert len(launches) == 1
        expand(*step(2, 32, 1025, list(range(9))))
        assert len(launches) == 1


def test_equal_candidates_stand_by_slot_then_label_then_duration() -> None:
    beam, width = 6, 40
    status = mx.zeros((1, beam), mx.int32)
    waits = mx.array([0, 2], mx.int32)
    inputs = Step(mx.zeros((1, beam, width + 2)), waits, mx.full((1, beam), -3.0), status)
    for backend in (TESTED, "fibers"):
        made, expected = both(inputs, backend)
        for one, other in zip(made[1:4], expected[1:4], strict=True):
            np.testing.assert_array_equal(one, other)
        assert made[2].tolist() == [[0, 0, 1, 1, 2, 2]]
        assert made[3].tolist() == [[0, 2, 0, 2, 0, 2]]


@pytest.mark.parametrize("poison", [np.nan, np.inf, -np.inf])
@pytest.mark.parametrize("fusion", FUSIONS)
def test_a_bad_row_fails_alone(poison: float, fusion: str) -> None:
    inputs = replace(
        step(5, 8, 70, DURATIONS, fusion=fusion),
        scores=mx.full((5, 8), -2.0) - mx.arange(8),
        status=mx.zeros((5, 8), mx.int32),
    )
    logits = np.array(inputs.logits)
    logits[2, 1, :70] = poison
    if poison == np.inf:
        logits[2, 1, 1:70] = 0.0
    clean, _ = both(inputs)
    made, _ = both(replace(inputs, logits=mx.array(logits)))
    others = [0, 1, 3, 4]
    for one, other in zip(made, clean, strict=True):
        np.testing.assert_array_equal(one[others], other[others])
    assert made[6].tolist() == [True, True, False, True, True]
    assert not np.isin(1, made[1][2])


def test_bad_durations_fail_a_row_too() -> None:
    status = mx.zeros((3, 4), mx.int32)
    inputs = replace(step(3, 4, 70, DURATIONS), scores=mx.full((3, 4), -2.0), status=status)
    logits = np.array(inputs.logits)
    logits[1, 2, 73] = np.nan
    made, _ = both(replace(inputs, logits=mx.array(logits)))
    assert made[6].tolist() == [True, False, True]


def test_what_is_dead_or_finished_needs_no_normaliser() -> None:
    inputs = Step(
        mx.full((1, 3, 15), float("nan")),
        mx.array(DURATIONS, mx.int32),
        mx.array([[-1.0, float("-inf"), float("nan")]]),
        mx.array([[FINISHED, RUNS, RUNS]], mx.int32),
    )
    made, _ = both(inputs)
    assert made[6].tolist() == [True]
    assert made[1].tolist() == [[0, -1, -1]]
    assert made[2].tolist() == [[-1, -1, -1]]
    assert made[0][0, 0] == -1.0


def test_an_utterance_that_fuses_nothing_is_what_it_is_alone() -> None:
    inputs = step(2, 8, 70, DURATIONS, fusion="late-weighted")
    assert inputs.bonus is not None
    silent = mx.array([[[0.0]], [[1.0]]])
    alphas = inputs.bonus.alphas * silent[:, 0, 0]
    bonus = inputs.bonus._replace(gains=inputs.bonus.gains * silent, alphas=alphas)
    with use_backend(TESTED):
        beside = flat(expand(*replace(inputs, bonus=bonus)))
        plain = flat(expand(*replace(inputs, bonus=None)))
    for one, other in zip(beside, plain, strict=True):
        np.testing.assert_array_equal(one[0], other[0])


@pytest.mark.parametrize("timed", [True, False])
@pytest.mark.parametrize("slots", [1, 5, 32])
@pytest.mark.parametrize("steps", [0, 1, 4])
def test_settling_is_the_references(timed: bool, slots: int, steps: int) -> None:
    arrays = recombine_inputs(6, slots, timed=timed, steps=steps)
    limits = SETTLED._replace(lengths=lengths_of(6, 9), timed=timed)
    grown, beam = Expansion(*arrays[:3]), Beam(*arrays[3:])
    expected = recombine_reference(grown, beam, limits)
    for backend in (TESTED, "fibers"):
        with use_backend(backend):
            made = settle(grown, beam, limits)
        for name in ("slots", "tokens", "common", "finite"):
            one, other = np.array(getattr(made, name)), np.array(getattr(expected, name))
            np.testing.assert_array_equal(one, other, err_msg=name)
        scores = np.array(expected.scores)
        alive = np.isfinite(scores)
        np.testing.assert_array_equal(np.isfinite(np.array(made.scores)), alive)
        np.testing.assert_allclose(np.array(made.scores)[alive], scores[alive], rtol=1e-6, atol=1e-6)
