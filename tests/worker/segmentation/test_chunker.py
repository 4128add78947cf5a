"""The chunk plan tiles the recording, cuts where nobody speaks, and hangs on the samples alone."""

from collections.abc import Iterator
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ops.testbed.bad_audio import Samples, babble
from worker.segmentation import (
    Chunk,
    ChunkOptions,
    ChunkPlanner,
    GateOptions,
    best_pause,
    frame_moments,
    levels_of,
    plan_channels,
    plan_chunks,
)

RATE = 16_000
# The same plan at a tenth of the scale, so that thousands of cuts can be tried.
SMALL = ChunkOptions(
    aim=2.0, max=3.2, overlap=0.2, tail=0.5, pause=0.1, gate=GateOptions(seconds=0.6, margin=0.1)
)


def silence(seconds: float) -> Samples:
    return np.zeros(round(seconds * RATE), dtype=np.float32)


def hiss(seconds: float, dbfs: float, seed: int = 5) -> Samples:
    noise = np.random.default_rng(seed).standard_normal(round(seconds * RATE))
    return (noise * 10 ** (dbfs / 20)).astype(np.float32)


def steady(seconds: float) -> Samples:
    """A sound without any pause."""
    return (0.1 * np.random.default_rng(9).standard_normal(round(seconds * RATE))).astype(np.float32)


def plan(samples: Samples, options: ChunkOptions | None = None) -> list[Chunk]:
    chunks = list(plan_chunks([samples], options))
    check_tiling(chunks, samples, options or ChunkOptions())
    return chunks


def check_tiling(chunks: list[Chunk], samples: Samples, options: ChunkOptions) -> None:
    """Law 6, and what every chunk promises."""
    at = 0
    for index, chunk in enumerate(chunks):
        assert chunk.span.index == index
        assert chunk.span.core_start == at
        assert chunk.span.start <= chunk.span.core_start < chunk.span.core_end <= chunk.span.end
        assert chunk.span.end - chunk.span.start <= round(options.max * RATE)
        np.testing.assert_array_equal(chunk.samples, samples[chunk.span.start : chunk.span.end])
        at = chunk.span.core_end
    assert at == len(samples)


def seconds(chunks: list[Chunk]) -> list[float]:
    return [(chunk.span.core_end - chunk.span.core_start) / RATE for chunk in chunks]


def split(samples: Samples, sizes: list[int]) -> Iterator[Samples]:
    at = 0
    for size in sizes:
        yield samples[at : at + size]
        at += size
    yield samples[at:]


@pytest.mark.parametrize("count", [0, 10, 159, 160, 161, RATE, 30 * RATE])
def test_short_recordings_are_one_chunk_at_most(count: int) -> None:
    chunks = plan(babble(31.0)[:count])
    assert len(chunks) == (1 if count else 0)
    assert all(chunk.speech for chunk in chunks)


def test_cuts_fall_into_the_longest_pause() -> None:
    sound = np.concatenate([steady(22), silence(0.25), steady(4), silence(0.6), steady(14)])
    chunks = plan(sound)
    assert seconds(chunks) == [pytest.approx(22 + 0.25 + 4 + 0.3, abs=0.02), pytest.approx(14.3, abs=0.02)]
    assert chunks[0].span.end == chunks[0].span.core_end
    assert chunks[1].span.start == chunks[1].span.core_start


@pytest.mark.parametrize("floor", [-70.0, -50.0, -35.0])
def test_pauses_are_found_above_the_noise_of_the_recording(floor: float) -> None:
    sound = np.concatenate([steady(24), silence(0.4), steady(14)])
    chunks = plan(sound + hiss(len(sound) / RATE, floor))
    assert seconds(chunks)[0] == pytest.approx(24.2, abs=0.05)


@pytest.mark.parametrize("gain", [1.0, 1e-2, 1e-3])
def test_the_plan_of_speech_does_not_hang_on_how_loud_it_is(gain: float) -> None:
    speech = np.concatenate([babble(24), silence(0.5), babble(30, seed=1), silence(0.5), babble(20, seed=2)])
    reference, quiet = plan(speech), plan((speech * gain).astype(np.float32))
    assert [c.span.core_end for c in quiet] == [c.span.core_end for c in reference]
    assert all(chunk.speech for chunk in quiet)


def test_without_a_pause_both_sides_hear_across_the_cut() -> None:
    chunks = plan(steady(100))
    assert len(chunks) >= 4
    for left, right in pairwise(chunks):
        assert left.span.end == left.span.core_end + 2 * RATE
        assert right.span.start == right.span.core_start - 2 * RATE
        assert 20 * RATE <= left.span.core_end - left.span.core_start <= 30 * RATE


@pytest.mark.parametrize("rest", [0.001, 0.5, 2.0, 4.9])
def test_a_tiny_rest_is_not_left_alone(rest: float) -> None:
    for sound in (steady(30 + rest), np.concatenate([steady(29), silence(0.5), steady(0.5 + rest)])):
        assert min(seconds(plan(sound))) >= 5.0


def test_a_long_silence_is_a_core_of_its_own_and_asked_of_nobody() -> None:
    sound = np.concatenate([babble(8), silence(100), babble(8, seed=1)])
    chunks = plan(sound)
    gated = [chunk for chunk in chunks if not chunk.speech]
    spoken = [chunk for chunk in chunks if chunk.speech]
    assert sum(seconds(gated)) == pytest.approx(99, abs=0.2)
    assert sum(seconds(spoken)) == pytest.approx(17, abs=0.2)
    for chunk in gated:
        assert not chunk.samples.any()


@pytest.mark.parametrize(
    "quiet",
    [silence(60), silence(60) + np.float32(0.01), hiss(60, -75), hiss(60, -96), np.sign(hiss(60, 0)) / 32768],
    ids=["digital", "offset", "room", "dither", "last bit"],
)
def test_silence_is_not_asked_of_the_engine(quiet: Samples) -> None:
    assert not any(chunk.speech for chunk in plan(quiet.astype(np.float32)))


def test_ten_zeros_are_silence_and_ten_samples_are_not() -> None:
    assert [chunk.speech for chunk in plan(np.zeros(10, dtype=np.float32))] == [False]
    assert [chunk.speech for chunk in plan(np.arange(10, dtype=np.float32) / np.float32(10))] == [True]


@pytest.mark.parametrize(
    ("gain", "noise"), [(1e-2, None), (1e-2, -90.0), (1e-3, None), (1e-3, -100.0), (5e-4, None)]
)
def test_quiet_speech_is_kept(gain: float, noise: float | None) -> None:
    sound = np.concatenate([silence(10), babble(3), silence(10), babble(1.0, seed=1), silence(10)]) * gain
    if noise is not None:
        sound = sound + hiss(len(sound) / RATE, noise)
    chunks = plan(sound.astype(np.float32))
    for start, end in ((10, 13), (23, 24)):
        covering = [c for c in chunks if c.span.core_start < end * RATE and c.span.core_end > start * RATE]
        assert all(chunk.speech for chunk in covering)
    assert sum(seconds([chunk for chunk in chunks if not chunk.speech])) > 15


def test_a_word_after_a_hush_keeps_the_moment_before_it() -> None:
    sound = np.concatenate([silence(20), babble(2), silence(20)])
    (spoken,) = [chunk for chunk in plan(sound) if chunk.speech]
    assert spoken.span.core_start <= 19.6 * RATE
    assert spoken.span.core_end >= 22.4 * RATE


@st.composite
def recordings(draw: st.DrawFn) -> Samples:
    parts = draw(
        st.lists(
            st.tuples(st.sampled_from(["babble", "steady", "silence", "hiss"]), st.floats(0.01, 4.0)),
            min_size=1,
            max_size=8,
        )
    )
    makers = {"babble": babble, "steady": steady, "silence": silence, "hiss": lambda s: hiss(s, -70)}
    return np.concatenate([makers[kind](length) for kind, length in parts])


@settings(max_examples=60, deadline=None)
@given(sound=recordings(), sizes=st.lists(st.integers(0, 40_000), max_size=30))
def test_every_sample_is_in_one_core_and_blocks_decide_nothing(sound: Samples, sizes: list[int]) -> None:
    whole = plan(sound, SMALL)
    pieces = list(plan_chunks(split(sound, sizes), SMALL))
    check_tiling(pieces, sound, SMALL)
    facts = [(c.span.core_start, c.span.core_end, c.span.start, c.span.end, c.speech) for c in whole]
    assert [(c.span.core_start, c.span.core_end, c.span.start, c.span.end, c.speech) for c in pieces] == facts


@settings(max_examples=30, deadline=None)
@given(sound=recordings(), more=recordings())
def test_what_comes_later_changes_no_chunk_that_was_given_out(sound: Samples, more: Samples) -> None:
    planner = ChunkPlanner(SMALL)
    early = [(chunk.span.core_start, chunk.span.core_end, chunk.speech) for chunk in planner.push(sound)]
    later = [
        (c.span.core_start, c.span.core_end, c.speech) for c in plan(np.concatenate([sound, more]), SMALL)
    ]
    assert later[: len(early)] == early


def test_memory_is_bounded_by_what_is_looked_at() -> None:
    planner = ChunkPlanner()
    second = steady(1)
    for _ in range(600):
        list(planner.push(second))
        held = sum(len(part) for part in planner._parts)
        assert held <= (30 + 5 + 2 + 1) * RATE + 1


def test_channels_are_planned_alone() -> None:
    left = np.concatenate([steady(24), silence(0.5), steady(15)])
    right = np.concatenate([silence(30), babble(9.5)])
    both = np.stack([left, right], axis=1)
    blocks = [both[at : at + RATE] for at in range(0, len(both), RATE)]
    chunks = list(plan_channels(blocks, 2))
    for channel, samples in enumerate((left, right)):
        mine = [chunk for chunk in chunks if chunk.span.channel == channel]
        check_tiling(mine, samples, ChunkOptions())
        alone = plan(samples)
        assert [c.span.core_end for c in mine] == [c.span.core_end for c in alone]


def test_lengths_that_leave_no_place_to_cut_are_refused() -> None:
    with pytest.raises(ValueError, match="overlap <= tail <= aim"):
        ChunkOptions(aim=29.0)


def test_levels_are_of_the_alternating_part() -> None:
    square = np.tile(np.array([0.5, -0.5], dtype=np.float32), 80) + np.float32(0.25)
    assert levels_of(frame_moments(square))[0] == pytest.approx(-6.02, abs=0.01)
    assert best_pause(np.array([]), 0, 0, 1) is None
