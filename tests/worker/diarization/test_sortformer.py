"""Sortformer against NeMo: who speaks in each frame of recordings taken at once and followed."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from spool.errors import AudioTooLong, InvalidRequest
from tests.worker.models.sortformer.golden import (
    NORMALISED,
    OFFLINE,
    ONE_ROW,
    STREAMING,
    TALK_ROW,
    Floats,
    answer,
    archive,
    network,
    parsed,
    recordings,
    rewritten,
)
from tests.worker.speech.sounds import blocks_of
from worker.diarization import (
    TUNED,
    Followed,
    Sortformer,
    SpeakerBounds,
    active_stretches,
    load_diarization,
    load_network,
    run_here,
)
from worker.models import SpeakerCache, StreamingOptions

# Four layers in float32, in another order, and a head that was spread out so that logits reach ±10.
AT_ONCE, FOLLOWED = 2e-5, 5e-5
STREAMED = [(STREAMING, setting) for setting in ("default", "high", "very_high", "small")]
STREAMED += [(NORMALISED, "small")]
POST = {"plain": "none", "callhome_v1": "callhome-v1", "dihard_v1": "dihard3-v1"}
POST |= {"callhome_v2": "callhome-v2", "dihard_v2": "dihard3-v2"}


def followed(name: str, samples: Floats, setting: str, size: int = 7777) -> Followed:
    return Sortformer("", archive(name)).follow(
        lambda: blocks_of(samples, size), run_here(network(name)), setting
    )


def followed_as(name: str, samples: Floats, constants: dict[str, int]) -> Followed:
    model = Sortformer("", archive(name))
    own = model.config.streaming or StreamingOptions()
    model.config = replace(model.config, streaming=replace(own, **constants))
    return model.follow(lambda: blocks_of(samples, 7777), run_here(network(name)))


@pytest.mark.parametrize("row", [TALK_ROW, ONE_ROW])
@pytest.mark.parametrize("name", [OFFLINE, STREAMING, NORMALISED])
def test_a_recording_taken_at_once(name: str, row: int) -> None:
    heard = followed(name, recordings()[row], "offline")
    np.testing.assert_allclose(heard.probabilities, answer(name, f"preds.{row}"), rtol=0, atol=AT_ONCE)
    assert heard.samples == len(recordings()[row])


@pytest.mark.parametrize("row", [TALK_ROW, ONE_ROW])
@pytest.mark.parametrize(("name", "setting"), STREAMED)
def test_a_recording_that_is_followed(name: str, setting: str, row: int) -> None:
    heard = followed_as(name, recordings()[row], parsed(name, "settings")[setting])
    expected = answer(name, f"stream.{setting}.{row}")
    np.testing.assert_allclose(heard.probabilities, expected, rtol=0, atol=FOLLOWED)


def test_the_default_is_the_files_own_and_a_preset_is_the_cards() -> None:
    one = recordings()[TALK_ROW]
    for setting in ("default", "very_high"):
        expected = answer(STREAMING, f"stream.{setting}.{TALK_ROW}")
        np.testing.assert_allclose(
            followed(STREAMING, one, setting).probabilities, expected, rtol=0, atol=FOLLOWED
        )
    np.testing.assert_array_equal(
        followed(OFFLINE, one, "default").probabilities, followed(OFFLINE, one, "offline").probabilities
    )


@pytest.mark.parametrize("setting", ["default", "small"])
def test_the_cache_ends_as_nemos_does(setting: str, monkeypatch: pytest.MonkeyPatch) -> None:
    caches: list[SpeakerCache] = []

    def kept(width: int, options: StreamingOptions) -> SpeakerCache:
        caches.append(SpeakerCache(width, options))
        return caches[-1]

    monkeypatch.setattr("worker.diarization.sortformer.SpeakerCache", kept)
    followed_as(STREAMING, recordings()[TALK_ROW], parsed(STREAMING, "settings")[setting])
    expected = [answer(STREAMING, f"{part}.{setting}.{TALK_ROW}") for part in ("cache", "fifo")]
    np.testing.assert_allclose(caches[0].frames, np.concatenate(expected), rtol=0, atol=1e-4)


@pytest.mark.parametrize("post", POST)
@pytest.mark.parametrize("row", [TALK_ROW, ONE_ROW])
def test_segments_are_nemos_to_10_ms(row: int, post: str) -> None:
    rows = parsed(STREAMING, f"segments.offline.{row}.{post}")
    probabilities = answer(STREAMING, f"preds.{row}")
    for speaker in range(4):
        expected = [each[:2] for each in rows if each[2] == speaker]
        stretches = active_stretches(probabilities[:, speaker], 0.08, TUNED[POST[post]])
        assert len(stretches) == len(expected)
        # 10 ms: NeMo ends a speaker's last segment one step early.
        np.testing.assert_allclose(np.array(stretches), np.array(expected), rtol=0, atol=0.0101)


@pytest.mark.parametrize("setting", ["offline", "default", "low"])
def test_the_blocks_it_comes_in_change_no_bit(setting: str) -> None:
    samples = recordings()[ONE_ROW]
    expected = followed(STREAMING, samples, setting, len(samples)).probabilities
    for size in (160, 1001):
        np.testing.assert_array_equal(followed(STREAMING, samples, setting, size).probabilities, expected)


@pytest.mark.parametrize("samples", [0, 159, 160, 1279, 1281, 188 * 1280, 188 * 1280 + 160])
@pytest.mark.parametrize(("name", "setting"), [(OFFLINE, "offline"), (STREAMING, "default")])
def test_a_recording_of_any_length_has_a_row_for_each_80_ms(name: str, setting: str, samples: int) -> None:
    sound = recordings()[TALK_ROW][:samples]
    heard = followed(name, sound, setting)
    assert heard.samples == samples
    assert heard.probabilities.shape == (-(-(samples // 160) // 8), 4)
    assert np.isfinite(heard.probabilities).all()


def test_a_model_that_cannot_follow_says_so() -> None:
    with pytest.raises(InvalidRequest, match="so it has no setting very_high; use offline"):
        followed(OFFLINE, recordings()[ONE_ROW], "very_high")


def test_what_is_too_long_to_be_taken_at_once_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("worker.diarization.sortformer.OFFLINE_SECONDS", 2)
    with pytest.raises(AudioTooLong, match="longer than 2 s"):
        followed(STREAMING, recordings()[ONE_ROW], "offline")


def test_as_a_diarization_model_it_gives_segments_of_every_column() -> None:
    model = load_diarization(str(archive(STREAMING)))
    run = run_here(load_network(model.path))
    result = model.diarize(lambda: blocks_of(recordings()[TALK_ROW]), run, SpeakerBounds())
    assert result.speakers == 4
    speech = sum(each.end - each.start for each in result.segments)
    assert speech == pytest.approx((result.probabilities > 0.5).sum() * 0.08, abs=0.01 * len(result.segments))


def test_of_fewer_speakers_those_who_speak_most_stay() -> None:
    model = load_diarization(str(archive(STREAMING)))
    run = run_here(load_network(model.path))
    samples = recordings()[TALK_ROW]
    every = model.diarize(lambda: blocks_of(samples), run, SpeakerBounds())
    two = model.diarize(lambda: blocks_of(samples), run, SpeakerBounds(1, 2))
    spoken = (every.probabilities > 0.5).sum(0)
    kept = set(np.argsort(-spoken)[:2].tolist())
    assert two.segments == [each for each in every.segments if each.speaker in kept]
    assert two.speakers == 2


def test_the_digest_is_of_the_files_bytes(tmp_path: Path) -> None:
    first = load_diarization(str(archive(STREAMING))).digest
    other = rewritten(STREAMING, tmp_path / "other.nemo", lambda tree: tree.update(lr=1))
    assert load_diarization(str(other)).digest != first == load_diarization(str(archive(STREAMING))).digest
