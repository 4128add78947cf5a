"""`spool-worker witness` with the published weights, on real speech with planted inventions.

Fetches the catalogue's packages once, by their hashes; `SPOOL_MODEL_STORE` says where they are kept.
"""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import soundfile

from ops.accuracy.whisper.sounds import music
from worker.cli.main import main

pytestmark = [pytest.mark.integration, pytest.mark.timeout(900)]

SAMPLES = Path(__file__).parents[3] / "samples" / "open"
INVENTED = "thank you very much for watching this video"


@pytest.fixture(scope="module")
def tape(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, list[dict[str, Any]]]:
    """Readers one after another with music behind the second, and what they say when."""
    rows = [json.loads(line) for line in (SAMPLES / "manifest.jsonl").read_text().splitlines()]
    parts, segments, at = [], [], 0
    for row in [each for each in rows if each["file"].startswith("readers/")][:4]:
        samples, rate = soundfile.read(SAMPLES / row["file"], dtype="float32")
        segments.append({"start": at / rate, "end": (at + len(samples)) / rate, "text": row["text"]})
        parts += [samples, np.zeros(rate, np.float32)]
        at += len(samples) + rate
        if len(segments) == 2:
            parts.append(music(5.0))
            at += len(parts[-1])
    path = tmp_path_factory.mktemp("tape") / "tape.wav"
    soundfile.write(path, np.concatenate(parts), 16_000)
    return path, segments


def run(capsys: pytest.CaptureFixture[str], tape: Path, segments: list[dict[str, Any]]) -> dict[str, Any]:
    transcript = tape.with_name("transcript.json")
    transcript.write_text(json.dumps({"segments": segments}))
    main(["witness", str(tape), "--transcript", str(transcript), "--format", "json"])
    found = json.loads(capsys.readouterr().out)
    assert [each["text"] for each in found["segments"]] == [each["text"] for each in segments]
    return dict(found)


def test_inventions_over_music_and_in_place_of_speech_are_flagged_and_nothing_else(
    capsys: pytest.CaptureFixture[str], tape: tuple[Path, list[dict[str, Any]]]
) -> None:
    path, said = tape
    clean = run(capsys, path, said)
    assert [each["flagged"] for each in clean["segments"]] == [False] * 4
    assert clean["speech_without_words"] == []
    over = {"start": said[1]["end"] + 1, "end": said[1]["end"] + 5, "text": INVENTED}
    planted = [said[0], said[1], over, {**said[2], "text": INVENTED}]
    found = run(capsys, path, planted)
    assert [each["flagged"] for each in found["segments"]] == [False, False, True, True]
    assert all(word["evidence"] < 0.05 for each in found["segments"][2:] for word in each["words"])
    lost = found["speech_without_words"]
    assert min(each["start"] for each in lost) < said[2]["end"] < said[3]["start"]
    assert max(each["end"] for each in lost) > said[3]["start"] + 1


def test_a_transcript_for_people_and_one_that_is_not_there(
    capsys: pytest.CaptureFixture[str], tape: tuple[Path, list[dict[str, Any]]]
) -> None:
    path, said = tape
    subtitles = path.with_name("t.srt")
    subtitles.write_text(f"1\n00:00:00,000 --> 00:00:04,000\n{INVENTED}\n")
    main(["witness", str(path), "--transcript", str(subtitles)])
    printed = capsys.readouterr().out
    assert f"nobody said this: {INVENTED}" in printed
    assert "speech without words" in printed
    assert said
    with pytest.raises(SystemExit) as stopped:
        main(["witness", str(path), "--transcript", str(path.with_name("none.srt"))])
    assert stopped.value.code == 2
    assert "none.srt: the transcript cannot be read: No such file" in capsys.readouterr().err


def test_transcribe_checks_its_own_words(capsys: pytest.CaptureFixture[str]) -> None:
    reader = SAMPLES / "readers" / "reader-1.flac"
    main(["transcribe", str(reader), "--model", "whisper-tiny.en", "--witness"])
    (found,) = json.loads(capsys.readouterr().out)
    assert [each["flagged"] for each in found["segments"]] == [False]
    assert found["speech_without_words"] == []
    assert found["segments"][0]["words"][0].keys() == {"text", "start", "end", "evidence"}
    assert found["witness"]["words_without_evidence"] <= 1
    assert all(0 <= word["evidence"] <= 1 for word in found["words"])
