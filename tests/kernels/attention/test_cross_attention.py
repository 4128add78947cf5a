"""Cross attention: rows in any order share their utterance's frames, and nothing else decides a row."""

import mlx.core as mx
import numpy as np
import pytest

from kernels.attention import cross_attention_reference, plain_keys, tile_keys
from kernels.attention.cross_attention import cross_attention
from kernels.contracts import same_bits
from kernels.contracts.case import distance, normal
from kernels.runtime import use_backend
from ops.testbed.kernel_cases import TESTED

HEADS, WIDTH, FRAMES = 2, 64, 300
LENGTHS = mx.array([300, 0, 1, 33, 256], mx.int32)
COUNT = len(LENGTHS)


def inputs(rows: list[int], scale: float = 1.0) -> list[mx.array]:
    """Queries of these utterances, keys, values, the utterances and the lengths."""
    keys = normal(COUNT, HEADS, WIDTH, FRAMES, seed=1, scale=scale)
    values = normal(COUNT, HEADS, FRAMES, WIDTH, seed=2)
    return [normal(len(rows), HEADS, WIDTH), keys, values, mx.array(rows, mx.int32), LENGTHS]


def in_numpy(given: list[mx.array]) -> np.ndarray:
    """Row by row in float64."""
    queries, keys, values, utterances, lengths = (np.array(each) for each in given)
    made = np.zeros(queries.shape)
    for row, utterance in enumerate(utterances):
        if not 0 <= utterance < COUNT or lengths[utterance] == 0:
            continue
        n = lengths[utterance]
        for head in range(HEADS):
            scores = queries[row, head].astype(np.float64) @ keys[utterance, head, :, :n] / np.sqrt(WIDTH)
            weights = np.exp(scores - scores.max())
            made[row, head] = weights / weights.sum() @ values[utterance, head, :n]
    return made


@pytest.mark.parametrize("scale", [1.0, 20.0])
@pytest.mark.parametrize("rows", [[0], [4, 0, 4, -1, 3, 4, 2, 1, 5, 0], [0] * 7 + [3] * 9])
def test_rows_in_any_order_attend_to_their_utterance(rows: list[int], scale: float) -> None:
    given = inputs(rows, scale)
    with use_backend(TESTED):
        made = cross_attention(*given, beam=9)
    expected = in_numpy(given)
    np.testing.assert_allclose(np.array(made), expected, atol=1e-5 * scale)
    reference = cross_attention_reference(*given, beam=9)
    np.testing.assert_allclose(np.array(reference), expected, atol=1e-5 * scale)


def test_a_row_does_not_depend_on_the_rows_beside_it() -> None:
    given = inputs([0, 3, 0, 4, 2, 0, 3, 0, 0, 0, 0, 0])
    queries, keys, values, utterances, lengths = given
    with use_backend(TESTED):
        together = cross_attention(*given, beam=8)
        for beam in (1, 2, 5):
            assert same_bits(together, cross_attention(*given, beam=beam))
        for row in range(len(queries)):
            one = slice(row, row + 1)
            alone = cross_attention(queries[one], keys, values, utterances[one], lengths, beam=1)
            assert same_bits(alone, together[one])


def test_frames_behind_a_length_are_not_read() -> None:
    queries, keys, values, utterances, lengths = inputs([0, 1, 2, 3, 4, 4, 3])
    beyond = mx.arange(FRAMES) >= lengths[:, None]
    dirty = (
        mx.where(beyond[:, None, None], mx.nan, keys),
        mx.where(beyond[:, None, :, None], mx.nan, values),
    )
    wider = (mx.pad(keys, [(0, 0)] * 3 + [(0, 45)]), mx.pad(values, [(0, 0), (0, 0), (0, 45), (0, 0)]))
    with use_backend(TESTED):
        clean = cross_attention(queries, keys, values, utterances, lengths, beam=2)
        for other_keys, other_values in (dirty, wider):
            other = cross_attention(queries, other_keys, other_values, utterances, lengths, beam=2)
            assert same_bits(clean, other)
    reference = cross_attention_reference(queries, *dirty, utterances, lengths, beam=2)
    assert distance(clean, reference) < 5e-6


def test_keys_in_tiles_give_the_same_bits() -> None:
    queries, keys, values, utterances, lengths = inputs([0, 3, 0, 4, 2, 0, 3, 1])
    tiles = tile_keys(keys.swapaxes(2, 3))
    assert tiles.shape == (COUNT, HEADS, 5, WIDTH, 64)
    assert same_bits(plain_keys(tiles, FRAMES), keys)
    with use_backend(TESTED):
        plain = cross_attention(queries, keys, values, utterances, lengths, beam=3)
        assert same_bits(plain, cross_attention(queries, tiles, values, utterances, lengths, beam=3))
    reference = cross_attention_reference(queries, tiles, values, utterances, lengths, beam=3)
    assert distance(plain, reference) < 5e-6


def test_infinite_scores_go_the_way_of_softmax() -> None:
    """A frame that scores minus infinity weighs nothing; where all do, or one scores infinity, nothing is
    known."""
    queries, keys, values, utterances, lengths = inputs([0, 3, 4])
    queries = mx.abs(queries) + 1.0
    hurt = np.array(keys)
    hurt[0, :, 0, 64:96] = -np.inf  # a whole block of 32
    hurt[3, :, 0, :] = -np.inf
    hurt[4, :, 0, 77] = np.inf
    arguments = (queries, mx.array(hurt), values, utterances, lengths)
    with use_backend(TESTED):
        made = np.array(cross_attention(*arguments, beam=1))
    expected = np.array(cross_attention_reference(*arguments, beam=1))
    assert np.isfinite(made[0]).all()
    np.testing.assert_allclose(made[0], expected[0], atol=1e-5)
    assert np.isnan(made[1:]).all()
    assert np.isnan(expected[1:]).all()


def test_no_row_no_utterance_and_no_frame_are_no_error() -> None:
    queries, keys, values, utterances, lengths = inputs([0, 1])
    none = mx.zeros((0,), mx.int32)
    with use_backend(TESTED):
        assert cross_attention(queries[:0], keys, values, none, lengths, beam=1).shape == (0, HEADS, WIDTH)
        made = cross_attention(queries, keys[:0], values[:0], utterances, none, beam=1)
        assert not np.array(made).any()
        empty = cross_attention(queries, keys[..., :0], values[:, :, :0], utterances, lengths, beam=1)
        assert not np.array(empty).any()


def test_shapes_that_do_not_fit_are_refused() -> None:
    queries, keys, values, utterances, lengths = inputs([0, 1])
    with pytest.raises(ValueError, match="do not fit"):
        cross_attention(queries, keys.swapaxes(2, 3), values, utterances, lengths, beam=1)
    with pytest.raises(ValueError, match="need as many entries"):
        cross_attention(queries, keys, values, utterances[:1], lengths, beam=1)


@pytest.mark.slow  # each width is compiled
@pytest.mark.parametrize("width", [32, 64, 128, 256])
def test_wide_heads_and_wide_beams_fit_a_threadgroup(width: int) -> None:
    """The fibers have the memory of an Apple GPU's threadgroup and no more."""
    keys, values = normal(1, 1, width, 70), normal(1, 1, 70, width, seed=1)
    queries, none = normal(11, 1, width), mx.zeros((11,), mx.int32)
    made = {}
    for backend in ("fibers", TESTED):
        with use_backend(backend):
            made[backend] = cross_attention(queries, keys, values, none, mx.array([70]), beam=11)
            for beam in (5, 8):
                again = cross_attention(queries, keys, values, none, mx.array([70]), beam=beam)
                assert same_bits(again, made[backend])
    reference = cross_attention_reference(queries, keys, values, none, mx.array([70]), beam=11)
    assert distance(made["fibers"], reference) < 5e-6
    assert distance(made[TESTED], reference) < 5e-6


def test_queries_may_come_scaled() -> None:
    queries, *rest = inputs([0, 3, 4, 4])
    with use_backend(TESTED):
        made = cross_attention(queries / 8.0, *rest, beam=2, scaled=True)
        assert same_bits(made, cross_attention(queries, *rest, beam=2))
    reference = cross_attention_reference(queries / 8.0, *rest, beam=2, scaled=True)
    assert distance(made, reference) < 5e-6
