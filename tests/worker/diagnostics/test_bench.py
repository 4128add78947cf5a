"""The bench's arithmetic, over a real engine and the tiny model."""

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from ops.testbed.fake_models import LOADER, RATE
from ops.testbed.jobs import speechlike, write_wav
from spool.errors import AudioEmpty
from spool.settings import Settings
from worker.diagnostics import run_bench
from worker.models import SearchOptions


@pytest.mark.integration
@pytest.mark.parametrize("from_file", [True, False])
def test_bench_measures_at_least_what_was_asked(
    make_settings: Callable[..., Settings], tmp_path: Path, from_file: bool
) -> None:
    files = [write_wav(tmp_path / "a.wav", speechlike(50))] if from_file else []
    result = run_bench(make_settings(), "sleep=0.01", SearchOptions(), files, 200, LOADER)
    assert 200 <= result.audio_seconds < 240
    assert result.utterances >= 7
    assert result.words > 150
    assert 0 < result.engine_seconds <= result.wall_seconds
    assert result.rtfx == result.audio_seconds / result.engine_seconds


def test_bench_needs_speech(make_settings: Callable[..., Settings], tmp_path: Path) -> None:
    silence = write_wav(tmp_path / "silence.wav", np.zeros(30 * RATE, np.float32))
    with pytest.raises(AudioEmpty):
        run_bench(make_settings(), "plain", SearchOptions(), [silence], 10, LOADER)
