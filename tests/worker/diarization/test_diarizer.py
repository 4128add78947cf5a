"""The default diarizer against its numpy restatement, and on recordings that have little to tell apart."""

import tracemalloc
from collections.abc import Iterator, Sequence

import mlx.core as mx
import numpy as np
import pytest
from numpy.typing import NDArray

from spool.errors import AudioNotFinite
from tests.worker.speech.sounds import RATE, blocks_of, conversation, golden, music, noise
from worker.diarization import (
    WEIGHTS,
    ClusterOptions,
    Diarization,
    DiarizeOptions,
    Diarizer,
    SpeakerSegment,
    VoiceEncoder,
    VoiceNetwork,
    WindowOptions,
    build_timeline,
    cluster_prints,
    plan_windows,
    render_rttm,
    run_here,
    voice_prints,
)
from worker.speech import read_float32

pytestmark = pytest.mark.slow

Floats = NDArray[np.float32]


@pytest.fixture(scope="module")
def diarizer() -> Diarizer:
    return Diarizer()


def diarize(diarizer: Diarizer, samples: Floats, **clusters: int) -> Diarization:
    options = DiarizeOptions(clusters=ClusterOptions(**clusters))
    return diarizer.diarize(lambda: blocks_of(samples), options)


def rows(segments: list[SpeakerSegment]) -> NDArray[np.float64]:
    return np.array([(segment.start, segment.end, segment.speaker) for segment in segments])


@pytest.mark.parametrize("library", [np, mx])
def test_voice_prints_are_the_reference_s(library: object) -> None:
    encoder = VoiceEncoder(read_float32(WEIGHTS), library)  # type: ignore[arg-type]
    spans = plan_windows([tuple(row) for row in golden()["stretches"].tolist()], WindowOptions())
    np.testing.assert_allclose(spans, golden()["spans"], rtol=0, atol=1e-9)
    some = spans[:12] if library is mx else spans  # MLX's tanh is slow on a CPU
    prints = voice_prints(blocks_of(conversation()), some, run_here(VoiceNetwork(encoder)))
    # 160 steps of three layers in float32; the restatement is 4e-7 from the package, numpy's tanh adds 2e-6.
    np.testing.assert_allclose(prints, golden()["prints"][: len(some)], rtol=0, atol=5e-6)


@pytest.mark.parametrize(
    ("name", "clusters"), [("segments", {}), ("segments_3", {"min_speakers": 3, "max_speakers": 3})]
)
def test_segments_are_the_reference_s(diarizer: Diarizer, name: str, clusters: dict[str, int]) -> None:
    result = diarize(diarizer, conversation(), **clusters)
    np.testing.assert_allclose(rows(result.segments), golden()[name], rtol=0, atol=1e-9)
    assert result.samples == len(conversation())


@pytest.mark.parametrize(
    ("speakers", "bounds"), [(4, {}), (2, {"max_speakers": 2}), (6, {"min_speakers": 6, "max_speakers": 6})]
)
def test_bounds_on_the_number_of_speakers_are_kept(speakers: int, bounds: dict[str, int]) -> None:
    assert len(set(cluster_prints(golden()["prints"], ClusterOptions(**bounds)).tolist())) == speakers


def test_one_voice_is_one_speaker(diarizer: Diarizer) -> None:
    first, last = golden()["stretches"][3]
    voice = conversation()[first:last]
    assert diarize(diarizer, np.tile(voice, 3)).speakers == 1


@pytest.mark.parametrize(
    "samples",
    [
        np.zeros(0, np.float32),
        np.zeros(5 * RATE, np.float32),
        noise(1.0),
        music(5.0),
        np.ones(100, np.float32),
    ],
    ids=["nothing", "silence", "a second of noise", "music", "a few samples"],
)
def test_nobody_speaks(diarizer: Diarizer, samples: Floats) -> None:
    assert diarize(diarizer, samples).segments == []


def test_one_second_of_speech_is_one_speaker(diarizer: Diarizer) -> None:
    result = diarize(diarizer, conversation()[60_000 : 60_000 + RATE])
    assert result.speakers == 1
    assert 0.4 < sum(segment.end - segment.start for segment in result.segments) <= 1.0


def test_a_sample_that_is_no_number_is_named(diarizer: Diarizer) -> None:
    samples = noise(1.0)
    samples[5] = np.inf
    with pytest.raises(AudioNotFinite, match="sample 5 "):
        diarize(diarizer, samples)


def test_windows_are_the_same_wherever_pieces_are_cut() -> None:
    run = run_here(VoiceNetwork())
    silence = np.zeros(40 * RATE, np.float32)
    samples = np.concatenate([silence, conversation()[: 6 * RATE]])
    stretch = (40 * RATE + 9_600, 42 * RATE)
    late = voice_prints(blocks_of(samples, 1_000), plan_windows([stretch], WindowOptions()), run)
    early = plan_windows([(9_600, 2 * RATE)], WindowOptions())
    np.testing.assert_allclose(late, voice_prints(blocks_of(samples[40 * RATE :]), early, run), atol=2e-6)


def test_eight_minutes_need_no_more_memory_than_three() -> None:
    class OneVoice(VoiceEncoder):
        """The network left out: what is measured here is what is kept of the samples."""

        def encode(self, windows: Sequence[Floats]) -> Floats:
            return np.eye(1, 256, dtype=np.float32).repeat(len(windows), 0)

    encoder = OneVoice.load()

    def peak(minutes: int) -> int:
        blocks: Iterator[Floats] = (noise(1.0) for _ in range(60 * minutes))
        spans = plan_windows([(0, 60 * minutes * RATE)], WindowOptions())
        tracemalloc.start()
        voice_prints(blocks, spans, run_here(VoiceNetwork(encoder)))
        _, most = tracemalloc.get_traced_memory()
        tracemalloc.stop()
        return most

    kept = 5 * 60 * 2.5 * 1200  # five more minutes of voice prints at 1 kB each, and their spans
    assert peak(8) < peak(3) + kept + 1e6


def test_a_stretch_without_a_window_goes_as_the_nearest() -> None:
    prints = np.eye(2, 256, dtype=np.float32)
    stretches = [(0, 16_000), (17_000, 20_000), (48_000, 64_000), (100_000, 104_000)]
    spans = plan_windows(stretches, WindowOptions())
    assert len(spans) == 2
    segments = build_timeline(stretches, spans, prints, np.array([1, 0]))
    assert [segment.speaker for segment in segments] == [0, 0, 1, 1]
    assert build_timeline([(0, 3000)], [], prints[:0], np.zeros(0, np.int64)) == []


def test_rttm_lines() -> None:
    text = render_rttm([SpeakerSegment(0.5, 1.75, 0), SpeakerSegment(2.0, 3.0, 1)], "tape 1")
    assert text.splitlines() == [
        "SPEAKER tape_1 1 0.500 1.250 <NA> <NA> speaker_0 <NA> <NA>",
        "SPEAKER tape_1 1 2.000 1.000 <NA> <NA> speaker_1 <NA> <NA>",
    ]
