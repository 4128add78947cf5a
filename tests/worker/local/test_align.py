"""`spool-worker align` end to end with the demo model: real speech, its text and that of others."""

import json
from pathlib import Path

import mlx.core as mx
import numpy as np
import pytest
import soundfile

from ops.testbed.invoking import invoke
from ops.testbed.nemo_model import load_nemo
from spool.domain import SpokenWord, Transcript, Typescript
from spool.errors import InvalidRequest
from worker.cli.main import main
from worker.local import align as aligning
from worker.local import align_file
from worker.models import NemoModel, load_model

ROOT = Path(__file__).parents[3]
DEMO = ROOT / "models" / "demo"
READERS = sorted((ROOT / "samples" / "open" / "readers").glob("*.flac"))


@pytest.fixture(scope="module")
def model() -> NemoModel:
    return load_nemo(DEMO, mx.float32)


@pytest.fixture(scope="module")
def texts() -> dict[str, str]:
    rows = map(json.loads, (ROOT / "samples" / "open" / "manifest.jsonl").read_text().splitlines())
    return {Path(row["file"]).name: row["text"] for row in rows}


@pytest.fixture(scope="module")
def tape(
    tmp_path_factory: pytest.TempPathFactory, texts: dict[str, str]
) -> tuple[Path, list[str], list[float]]:
    """All readers one after another with a second between: the file, their texts and where each begins."""
    pieces, starts, at = [], [], 0
    for path in READERS:
        samples, rate = soundfile.read(path, dtype="float32")
        assert rate == 16_000
        starts.append(at / rate)
        pieces += [samples, np.zeros(rate, np.float32)]
        at += len(samples) + rate
    file = tmp_path_factory.mktemp("tape") / "tape.wav"
    soundfile.write(file, np.concatenate(pieces), 16_000, subtype="PCM_16")
    return file, [texts[path.name] for path in READERS], starts


def words_of(text: str) -> Typescript:
    return Typescript(tuple(SpokenWord(word) for word in text.split()))


def test_words_of_the_text_get_their_times(
    model: NemoModel, tape: tuple[Path, list[str], list[float]], monkeypatch: pytest.MonkeyPatch
) -> None:
    file, texts, starts = tape
    monkeypatch.setattr("worker.decode.alignment.recording.APART", 3.0)  # several cuts
    result = align_file(model, file, words_of(" ".join(texts)))
    assert result.text == " ".join(word.text for word in result.words) == " ".join(texts)
    assert [word.start for word in result.words] == sorted(word.start for word in result.words)
    first = 0
    for text, start, after in zip(texts, starts, [*starts[1:], result.audio.duration], strict=True):
        own = result.words[first : first + len(text.split())]
        assert start <= own[0].start <= own[-1].end <= after
        first += len(own)
    assert result.alignment is not None
    assert result.alignment.belongs
    assert result.warnings == ()
    assert result.coverage.ratio == 1
    assert Transcript.model_validate_json(result.model_dump_json()) == result


def test_the_batch_changes_nothing(
    model: NemoModel, tape: tuple[Path, list[str], list[float]], monkeypatch: pytest.MonkeyPatch
) -> None:
    expected = align_file(model, tape[0], words_of(" ".join(tape[1])))
    monkeypatch.setattr(aligning, "CHUNKS_AT_ONCE", 1)
    assert align_file(model, tape[0], words_of(" ".join(tape[1]))) == expected


def test_the_text_of_another_tape_is_said_not_to_belong(model: NemoModel, texts: dict[str, str]) -> None:
    result = align_file(model, READERS[0], words_of(texts[READERS[1].name]))
    assert result.alignment is not None
    assert not result.alignment.belongs
    assert "does not seem to belong" in result.warnings[0]


def test_what_cannot_be_spelled_is_placed_between_its_neighbours_and_named(
    model: NemoModel, texts: dict[str, str]
) -> None:
    plain = texts[READERS[0].name].split()
    result = align_file(model, READERS[0], words_of(" ".join(["FOR", *plain[1:3], "☃", *plain[3:]])))
    expected = align_file(model, READERS[0], words_of(" ".join(plain)))
    assert [word.start for word in result.words[:3]] == [word.start for word in expected.words[:3]]
    assert result.words[2].end <= result.words[3].start <= result.words[3].end <= result.words[4].start
    assert "no tokens for 1 of" in result.warnings[0]
    assert "☃" in result.warnings[0]


def test_a_text_without_anchors_that_is_too_much_at_once_is_spread_with_no_score(
    model: NemoModel, texts: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("worker.decode.alignment.recording.MAX_CELLS", 100)
    result = align_file(model, READERS[0], words_of(texts[READERS[0].name]))
    assert {word.confidence for word in result.words} == {0.0}
    assert result.alignment is not None
    assert not result.alignment.belongs


def test_what_cannot_be_aligned_is_refused(model: NemoModel, tmp_path: Path) -> None:
    with pytest.raises(InvalidRequest, match="too many for"):
        align_file(model, READERS[0], words_of("word " * 2000))
    with pytest.raises(InvalidRequest, match="tokens for none"):
        align_file(model, READERS[0], words_of("☃ ☃"))
    transducer = load_model(ROOT / "tests" / "golden" / "tdt", mx.float32)
    with pytest.raises(InvalidRequest, match="no CTC head"):
        align_file(transducer, READERS[0], words_of("a word"))


def test_the_command_prints_the_record_and_names_the_speakers(texts: dict[str, str], tmp_path: Path) -> None:
    words = texts[READERS[0].name].split()
    text = tmp_path / "tape.txt"
    text.write_text(
        f"Anna: {' '.join(words[:4])}\nBo: {' '.join(words[4:8])}\nAnna: {' '.join(words[8:])}\nBo:\n"
    )
    run = invoke(main, ["align", str(READERS[0]), str(text), "--model", str(DEMO)])
    assert run.exit_code == 0, run.output
    record = Transcript.model_validate_json(run.stdout)
    assert [(speaker.label, speaker.name) for speaker in record.speakers] == [
        ("speaker_0", "Anna"),
        ("speaker_1", "Bo"),
    ]
    assert [turn.speaker for turn in record.turns] == ["speaker_0", "speaker_1", "speaker_0"]
    assert [segment.speaker for segment in record.segments] == ["speaker_0", "speaker_1", "speaker_0"]
    for bad in (
        ["align", str(READERS[0]), str(tmp_path / "none.txt")],
        ["align", str(READERS[0]), str(READERS[1])],
    ):
        refused = invoke(main, [*bad, "--model", str(DEMO)])
        assert refused.exit_code == 2
