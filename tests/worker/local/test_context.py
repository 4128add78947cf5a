"""`spool-worker transcribe` over the chunks of a file: n-best of each, and a state that goes on."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from ops.testbed.fake_models import RATE
from ops.testbed.invoking import invoke
from ops.testbed.jobs import write_wav
from tests.worker.engine.test_requests import DEMO, speech, write_lm
from worker.cli.main import main
from worker.models import Tokenizer

pytestmark = pytest.mark.slow


@pytest.fixture
def recording(tmp_path: Path) -> Path:
    """Speech of more than one chunk."""
    pause = np.zeros(RATE // 2, np.float32)
    return write_wav(
        tmp_path / "long.wav", np.concatenate([part for clip in speech() * 2 for part in (clip, pause)])
    )


def transcribed(recording: Path, *arguments: object) -> dict[str, Any]:
    asked = ["transcribe", str(recording), "--model", DEMO, "--decoder", "beam", "--nbest", "2"]
    outcome = invoke(main, [*asked, *map(str, arguments)])
    assert outcome.exit_code == 0, outcome.output
    return dict(json.loads(outcome.stdout)[0])


def test_each_chunk_has_its_hypotheses_and_goes_on_where_the_last_ended(
    recording: Path, tmp_path: Path
) -> None:
    lm = write_lm(tmp_path / "lm.arpa", Tokenizer.from_file(Path(DEMO) / "tokenizer.model").pieces, 5)
    fused = ["--lm", lm, "--alpha", 0.5, "--boost", "seven four"]
    apart = transcribed(recording, *fused)
    carried = transcribed(recording, *fused, "--context", "job")
    assert len(apart["chunks"]) == len(carried["chunks"]) >= 2
    assert [(chunk["start"], chunk["end"]) for chunk in apart["chunks"]] == [
        (chunk["start"], chunk["end"]) for chunk in carried["chunks"]
    ]
    scores = [[each["score"] for each in chunk["hypotheses"]] for chunk in apart["chunks"]]
    after = [[each["score"] for each in chunk["hypotheses"]] for chunk in carried["chunks"]]
    assert after[0] == pytest.approx(scores[0], abs=0.01)
    assert after[1] != pytest.approx(scores[1], abs=0.01), "what was heard before has a say"
    early = transcribed(recording, *fused, "--pruning", "early")
    assert [len(chunk["hypotheses"]) for chunk in early["chunks"]] == [2] * len(apart["chunks"])
    assert "nbest" in early
