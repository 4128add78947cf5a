"""The comparison with other engines, at the smallest size: Spool's own process, and all the arithmetic."""

from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ops.bench.peers import compare
from ops.bench.peers.child import read_utterances, write_utterances
from ops.bench.peers.speech import batches_of, cut_utterances

ROOT = Path(__file__).parents[2]
GOLDEN = ROOT / "tests" / "golden"
tokens = st.lists(st.integers(0, 3), max_size=8)


@settings(deadline=None, max_examples=20)
@given(st.floats(5.0, 70.0), st.integers(0, 5))
def test_utterances_are_of_the_lengths_asked_for(seconds: float, seed: int) -> None:
    # Given a second of sound, far less than is asked for
    sound = np.arange(16_000, dtype=np.float32)
    # When it is cut
    cut = cut_utterances([sound], seconds, seed)
    # Then it is repeated, every utterance is of 5 to 30 s and together they are what was asked for
    lengths = [len(each) for each in cut]
    assert sum(lengths) == int(seconds * 16_000)
    assert lengths == sorted(lengths, reverse=True)
    assert all(5.0 * 16_000 <= length <= 30.0 * 16_000 for length in lengths)
    assert all(((each[1:] - each[:-1]) % 16_000 == 1).all() for each in cut)


def test_batches_hold_every_utterance_once() -> None:
    assert list(batches_of(7, 3)) == [[0, 1, 2], [3, 4, 5], [6]]


def test_utterances_are_read_as_they_were_written(tmp_path: Path) -> None:
    utterances = [np.ones(3, np.float32), np.zeros(0, np.float32), np.full(5, 0.25, np.float32)]
    write_utterances(tmp_path / "audio.npz", utterances)
    read = read_utterances(tmp_path / "audio.npz")
    assert [each.tolist() for each in read] == [each.tolist() for each in utterances]


def slow_differences(a: list[int], b: list[int]) -> int:
    if not a or not b:
        return len(a) + len(b)
    swap = slow_differences(a[1:], b[1:]) + (a[0] != b[0])
    return swap if a[0] == b[0] else min(swap, slow_differences(a[1:], b) + 1, slow_differences(a, b[1:]) + 1)


@settings(deadline=None)
@given(st.lists(st.integers(0, 2), max_size=5), st.lists(st.integers(0, 2), max_size=5))
def test_edits_are_counted_as_by_trying_all_of_them(a: list[int], b: list[int]) -> None:
    assert compare.differences(a, b) == slow_differences(a, b)


@settings(deadline=None)
@given(tokens)
def test_what_is_the_same_has_no_edits(a: list[int]) -> None:
    assert compare.differences(a, a) == 0
    assert (
        compare.agreement("x", {0: a}, {0: a}) == f"x: 1 of 1 utterances the same, 0 edits in {len(a)} tokens"
    )


@pytest.mark.parametrize(
    ("value", "bounds", "reached"),
    [
        (1.5, {"least": 1.5}, True),
        (1.49, {"least": 1.5}, False),
        (1.1, {"most": 1.1}, True),
        (1.2, {"most": 1.1}, False),
        (None, {"least": 1.5}, None),
    ],
)
def test_a_target_says_whether_it_is_reached(
    value: float | None, bounds: dict[str, float], reached: bool | None
) -> None:
    assert compare.Target("x", value, **bounds).reached is reached


def test_spool_alone_is_measured_stage_by_stage(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    # Given a tiny model in the place of the one that NeMo makes
    (tmp_path / "mlx").symlink_to(GOLDEN / "hybrid")
    (tmp_path / "model.nemo").symlink_to(GOLDEN / "hybrid.nemo")
    # When Spool is measured without its peers
    options = ["--seconds", "11", "--rounds", "1", "--cache", str(tmp_path), "--model", str(tmp_path)]
    compare.main(
        [str(ROOT / "samples" / "demo-tdt"), *options, "--without", "nemo", "--without", "parakeet-mlx"]
    )
    # Then every stage has its row, and what needs a peer is said not to be measured
    shown = capsys.readouterr().out
    assert "1 utterances, 11 s, 1 threads" in shown
    for stage in (*compare.STAGES, "whole, beam 8"):
        row = next(line for line in shown.splitlines() if line.startswith(f"{stage} "))
        assert float(row.removeprefix(stage).split()[0]) >= 0.0
    assert shown.count("not measured") == 4
