"""`spool-worker transcribe` end to end: the contract of its JSON, its formats, and files that fail alone."""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import mlx.core as mx
import numpy as np
import pytest
import soundfile

from ops.testbed.invoking import invoke
from ops.testbed.nemo_model import load_nemo
from spool.domain import Lattice
from spool.errors import InvalidRequest, ModelError
from spool.formats import format_entry
from tests.worker.models.whisper.fixtures import tiny_model
from tests.worker.models.whisper.tiny import tone
from worker.cli.main import main
from worker.decode import BeamSettings
from worker.decode.attention import reading
from worker.local import render_results, transcribe_files, transcribe_with
from worker.models import NemoModel, SearchOptions

GOLDEN = Path(__file__).parents[2] / "golden"
MODEL = GOLDEN / "tdt"
RATE = 16_000


@pytest.fixture(scope="module")
def model() -> NemoModel:
    return load_nemo(MODEL, mx.float32)


@pytest.fixture(scope="module")
def speech(tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    """The golden utterances as WAV files."""
    folder = tmp_path_factory.mktemp("speech")
    paths = []
    with np.load(GOLDEN / "audio.npz") as file:
        for name, row, length in zip(file["names"], file["audio"], file["lengths"], strict=True):
            soundfile.write(folder / f"{name}.wav", row[:length], RATE, subtype="PCM_16")
            paths.append(folder / f"{name}.wav")
    return paths


@pytest.fixture
def bad(tmp_path: Path) -> dict[str, Path]:
    """Files that cannot be transcribed, by the code of the error that each must give."""
    paths = {
        name: tmp_path / f"{name}.wav" for name in ("audio_empty", "audio_unreadable", "audio_not_finite")
    }
    paths["audio_empty"].write_bytes(b"")
    paths["audio_unreadable"].write_text("these are the minutes of the meeting, in text\n" * 40)
    noise = np.random.default_rng(0).normal(0, 0.1, RATE).astype(np.float32)
    noise[500] = np.nan
    soundfile.write(paths["audio_not_finite"], noise, RATE, subtype="FLOAT")
    return paths | {"source_missing": tmp_path / "gone.wav"}


def run(*arguments: object, model: Path = MODEL) -> tuple[int, Any]:
    outcome = invoke(main, ["transcribe", "--model", str(model), *map(str, arguments)])
    return outcome.exit_code, outcome.stdout


def lists(key: str, row: int) -> list[tuple[list[int], list[int], float]]:
    with np.load(GOLDEN / "tdt.npz") as file:
        tokens, times, lengths = file[f"{key}.tok"][row], file[f"{key}.time"][row], file[f"{key}.len"][row]
        count, scores = int(file[f"{key}.n"][row]), file[f"{key}.score"][row]
    return [
        (tokens[k, : lengths[k]].tolist(), times[k, : lengths[k]].tolist(), float(scores[k]))
        for k in range(count)
    ]


def test_json_of_whole_files_is_nemos_nbest(speech: list[Path]) -> None:
    code, out = run(*speech, "--decoder", "beam", "--beam", 4, "--nbest", 4, "--no-chunk", "--format", "json")

    found = json.loads(out)
    assert code == 0
    assert [Path(one["file"]) for one in found] == speech
    with np.load(GOLDEN / "tdt.npz") as file:
        assert [one["frames"] for one in found] == file["encoder_len"].tolist()
    for row, one in enumerate(found):
        assert list(one) == ["file", "duration", "frames", "text", "words", "nbest"]
        expected = lists("malsd.k4", row)
        assert [(entry["tokens"], entry["times"]) for entry in one["nbest"]] == [e[:2] for e in expected]
        assert [entry["score"] for entry in one["nbest"]] == pytest.approx([e[2] for e in expected], abs=2e-3)
        assert one["text"] == one["nbest"][0]["text"]
        assert [word["text"] for word in one["words"]] == one["text"].split()
        assert all(list(word) == ["text", "start", "end", "confidence"] for word in one["words"])
        assert all(list(entry) == ["tokens", "score", "times", "durations", "text"] for entry in one["nbest"])
        assert one["duration"] == pytest.approx(soundfile.info(one["file"]).duration)


@pytest.mark.parametrize(("name", "arguments"), [("ctc", []), ("hybrid", ["--head", "ctc"])])
def test_a_ctc_head_is_searched_by_beam(speech: list[Path], name: str, arguments: list[str]) -> None:
    options = ["--decoder", "beam", "--beam", 8, "--nbest", 8, "--no-chunk", *arguments]
    code, out = run(*speech, *options, model=GOLDEN / f"{name}.nemo")

    assert code == 0
    with np.load(GOLDEN / f"{name}.beams.npz") as file:
        tokens, times, lengths = (file[f"ctc_beam.k8.{part}"] for part in ("tok", "time", "len"))
        counts = file["ctc_beam.k8.n"]
    for row, found in enumerate(json.loads(out)):
        assert [(one["tokens"], one["times"]) for one in found["nbest"]] == [
            (tokens[row, k, : lengths[row, k]].tolist(), times[row, k, : lengths[row, k]].tolist())
            for k in range(counts[row])
        ]


def test_a_language_model_and_phrases_have_a_say(speech: list[Path], tmp_path: Path) -> None:
    (tmp_path / "phrases").write_text("the\n\n")
    beam = ["--decoder", "beam", "--beam", 8, "--nbest", 8, "--no-chunk"]
    lm = ["--lm", GOLDEN / "lm.arpa", "--alpha", 0.3]

    _, with_lm = run(*speech, *beam, *lm)
    _, weighted = run(*speech, *beam, *lm, "--lm-blanks")
    code, boosted = run(
        *speech, *beam, "--boost", "a", "--boost-file", tmp_path / "phrases", "--boost-weight", 3
    )

    assert code == 0
    with np.load(GOLDEN / "tdt.beams.npz") as file:
        for key, out in (("malsd.k8.lm.plain", with_lm), ("malsd.k8.lm.weighted", weighted)):
            for row, found in enumerate(json.loads(out)):
                lengths, tokens = file[f"{key}.len"][row], file[f"{key}.tok"][row]
                assert [one["tokens"] for one in found["nbest"]] == [
                    tokens[k, : lengths[k]].tolist() for k in range(file[f"{key}.n"][row])
                ]
    _, plain = run(*speech, *beam)

    def count(out: str) -> int:
        return sum(word["text"] in ("a", "the") for found in json.loads(out) for word in found["words"])

    assert count(boosted) > count(plain)


def test_alternatives_and_lattices_come_beside_the_contracts_keys(speech: list[Path]) -> None:
    beam = ("--decoder", "beam", "--beam", 4, "--no-chunk")
    plain = json.loads(run(*speech[:2], *beam)[1])
    asked = json.loads(run(*speech[:2], *beam, "--alternatives", 2, "--lattice", "json", "--prune", 3)[1])
    kaldis = json.loads(run(*speech[:2], *beam, "--lattice", "kaldi", "--prune", 3)[1])

    for bare, full, kaldi in zip(plain, asked, kaldis, strict=True):
        assert [*bare, "lattice"] == [*full] == [*kaldi]
        (lattice,) = map(Lattice.model_validate, full["lattice"])
        assert lattice.prune == 3.0
        assert lattice.end == pytest.approx(bare["duration"], abs=1e-3)
        assert {word["text"] for word in bare["words"]} <= {arc.word for arc in lattice.arcs}
        assert kaldi["lattice"] == format_entry(lattice, Path(bare["file"]).name)
        for word in full["words"]:
            others = word.pop("alternatives", [])
            assert len(others) <= 2
            assert all(other["confidence"] > 0 for other in others)
            assert word["confidence"] + sum(other["confidence"] for other in others) <= 1.01
        assert full["words"] == bare["words"]
        assert full["nbest"] == bare["nbest"]

    code, alone = run(*speech[:2], *beam, "--format", "kaldi", "--prune", 3)
    assert (code, alone) == (0, "".join(one["lattice"] for one in kaldis))
    # By itself both times: a transducer's scores may differ in their last digit beside another file.
    told = json.loads(run(speech[0], *beam, "--format", "lattice", "--prune", 3)[1])
    assert told == json.loads(run(speech[0], *beam, "--lattice", "json", "--prune", 3)[1])[0]["lattice"]


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("--alternatives", 2), "--alternatives needs --decoder beam; it does not apply to greedy"),
        (("--lattice", "json"), "--lattice needs --decoder beam or wfst"),
        (("--decoder", "beam", "--prune", 3), "--prune needs --lattice"),
        (("--nbest", 2), "--nbest needs --decoder beam"),
        (("--context", "job"), "--context needs --language-model or --boost"),
        (("--rescore-model", "m"), "--rescore-model needs --decoder beam"),
        (("--decoder", "beam", "--lattice", "json", "--format", "srt"), "needs --format json"),
    ],
)
def test_what_cannot_be_given_is_refused(
    speech: list[Path], arguments: tuple[object, ...], words: str
) -> None:
    refused = invoke(main, ["transcribe", "--model", str(MODEL), str(speech[0]), *map(str, arguments)])
    assert refused.exit_code == 2
    assert words in refused.stderr


def test_greedy_is_the_default_and_gives_one_hypothesis(speech: list[Path]) -> None:
    code, out = run(speech[0], "--no-chunk")

    entries = json.loads(out)[0]["nbest"]
    assert code == 0
    assert [(entry["tokens"], entry["times"]) for entry in entries] == [e[:2] for e in lists("greedy", 0)]


def test_a_bad_file_fails_alone(speech: list[Path], bad: dict[str, Path]) -> None:
    mixed = [speech[0], *bad.values(), speech[1]]

    for flags in (["--no-chunk"], []):
        code, out = run(*mixed, "--decoder", "beam", *flags)
        clean = json.loads(run(speech[0], speech[1], "--decoder", "beam", *flags)[1])

        found = json.loads(out)
        assert code == 1
        assert [one["text"] for one in (found[0], found[-1])] == [one["text"] for one in clean]
        for code_name, path, one in zip(bad, bad.values(), found[1:-1], strict=True):
            assert list(one) == ["file", "error"]
            assert list(one["error"]) == ["code", "message"]
            assert one["error"]["code"] == code_name
            assert path.name in one["error"]["message"]


def test_odd_files_are_transcribed_rightly(model: NemoModel, tmp_path: Path, speech: list[Path]) -> None:
    soundfile.write(tmp_path / "ten.wav", np.zeros(10, np.float32), RATE)
    soundfile.write(tmp_path / "zeros.wav", np.zeros(2 * RATE, np.float32), RATE)

    for chunk in (False, True):
        ten, zeros, neighbour = transcribe_with(
            model, [tmp_path / "ten.wav", tmp_path / "zeros.wav", speech[1]], SearchOptions(), chunk=chunk
        )
        assert ten.transcript is not None
        assert (ten.transcript.text, ten.frames) == ("", 0)
        assert zeros.transcript is not None
        assert zeros.frames == 25
        assert neighbour.error is None
    # In chunks silence is not even searched.
    assert zeros.transcript is not None
    assert zeros.transcript.words == ()
    assert zeros.nbest[0][0].tokens == ()


def test_output_that_is_no_number_fails_alone_and_names_the_file(
    model: NemoModel, speech: list[Path], tmp_path: Path
) -> None:
    # Given a model whose encoder overflows on the louder of two files
    loud = np.random.default_rng(0).normal(0, 1, RATE).astype(np.float32)
    soundfile.write(tmp_path / "loud.wav", loud, RATE, subtype="FLOAT")
    clean = transcribe_with(model, speech[:1], SearchOptions(), chunk=False)

    encode = model.encode

    class Overflowing:
        """The model, with one utterance's frames overwritten by NaN as an overflow would."""

        def __getattr__(self, name: str) -> object:
            return getattr(model, name)

        def encode(self, samples: list[np.ndarray]) -> object:
            encoded = encode(samples)
            poison = mx.array([float(np.abs(row).max(initial=0) > 1) for row in samples])
            spoiled = mx.where(poison[:, None, None] > 0, mx.nan, encoded.frames)
            return type(encoded)(spoiled, encoded.lengths)

    found = transcribe_with(
        Overflowing(),  # type: ignore[arg-type]
        [speech[0], tmp_path / "loud.wav"],
        SearchOptions(),
        chunk=False,
    )

    def path(nbest: object) -> list[tuple[object, ...]]:
        return [(h.tokens, h.times, h.durations, text) for h, text in nbest]  # type: ignore[attr-defined]

    # Scores to a tolerance: OpenBLAS on busy cores sums in another order from run to run.
    assert path(found[0].nbest) == path(clean[0].nbest)
    assert [h.score for h, _ in found[0].nbest] == pytest.approx(
        [h.score for h, _ in clean[0].nbest], abs=1e-3
    )
    assert found[1].error is not None
    assert found[1].error.code == "engine"
    assert "loud.wav" in found[1].error.message


def test_a_recording_longer_than_a_window_fails_alone_without_chunks(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Random weights seldom end
    monkeypatch.setattr(reading, "beams_of", lambda *_: BeamSettings(max_new_tokens=6))
    files = [tmp_path / "short.wav", tmp_path / "long.wav"]
    for path, seconds in zip(files, (1.0, 30.01), strict=True):
        soundfile.write(path, tone(seconds, 1), RATE, subtype="FLOAT")
    short, long = transcribe_with(tiny_model(), files, SearchOptions(), chunk=False)
    assert short.error is None
    assert short.transcript is not None
    assert long.error is not None
    assert long.error.code == "audio_too_long"
    assert "long.wav" in long.error.message


def test_chunks_give_the_same_kind_of_answer(model: NemoModel, tmp_path: Path, speech: list[Path]) -> None:
    # Given 70 s: the utterances with pauses between, four times over
    pause = np.zeros(RATE, np.float32)
    parts = [part for path in speech for part in (soundfile.read(path, dtype="float32")[0], pause)] * 4
    samples = np.concatenate(parts)
    soundfile.write(tmp_path / "long.wav", samples, RATE, subtype="PCM_16")

    result = transcribe_with(model, [tmp_path / "long.wav"], SearchOptions(decoder="beam", nbest=4))[0]

    assert result.transcript is not None
    coverage, words = result.transcript.coverage, result.transcript.words
    assert coverage.ratio == 1.0
    assert coverage.audio_seconds == coverage.covered_seconds == len(samples) / RATE
    assert 0 < coverage.speech_seconds <= coverage.covered_seconds
    assert len(words) > 20
    assert [word.start for word in words] == sorted(word.start for word in words)
    assert words[-1].start > 60
    assert result.transcript.segments[-1].last_word == len(words) - 1
    assert len(result.nbest) == 1
    times = result.nbest[0][0].times
    assert list(times) == sorted(times)
    assert times[-1] < result.frames


@pytest.mark.parametrize("form", ["txt", "srt", "vtt"])
def test_other_formats_are_rendered_a_file_after_another(
    model: NemoModel, speech: list[Path], bad: dict[str, Path], form: str
) -> None:
    results = transcribe_with(model, [speech[0], bad["audio_empty"]], SearchOptions(), chunk=False)

    alone, both = render_results(results[:1], form), render_results(results, form)

    assert results[0].transcript is not None
    assert results[0].transcript.words[0].text in alone
    assert f"==> {speech[0]} <==\n{alone}" in both
    assert f"==> {bad['audio_empty']} <==\nerror: audio_empty.wav" in both
    assert ("-->" in alone) == (form != "txt")


def test_a_request_that_cannot_be_done_is_refused_before_any_file(speech: list[Path]) -> None:
    with pytest.raises(InvalidRequest, match="no ctc head"):
        transcribe_files(speech, str(MODEL), SearchOptions(head="ctc"))
    with pytest.raises(ModelError):
        transcribe_files(speech, str(GOLDEN), SearchOptions())


@pytest.mark.integration
@pytest.mark.parametrize(
    ("flags", "code", "sentence"),
    [
        (["--model", "nowhere/"], 1, "spool-worker: nowhere/: no folder"),
        (
            ["--model", str(MODEL), "--lm", "gone.arpa"],
            2,
            "spool-worker: gone.arpa: the language model cannot be read",
        ),
        (
            ["--model", str(MODEL), "--boost-file", "gone"],
            2,
            "spool-worker: gone cannot be read",
        ),
        (
            ["--model", str(MODEL), "--decoder", "beam", "--nbest", "5"],
            2,
            "spool-worker: --nbest must not exceed --beam, which is 4",
        ),
        (["--model", str(MODEL), "--head", "ctc"], 2, "spool-worker: the model has no ctc head; it has: tdt"),
    ],
)
def test_the_command_fails_with_one_sentence(
    flags: list[str], code: int, sentence: str, speech: list[Path]
) -> None:
    outcome = subprocess.run(
        [sys.executable, "-m", "worker.cli.main", "transcribe", *flags, str(speech[0])],
        capture_output=True,
        text=True,
        check=False,
        cwd=Path(__file__).parents[3],
    )
    assert (outcome.returncode, outcome.stdout) == (code, "")
    assert outcome.stderr.startswith(sentence)
    assert outcome.stderr.count("\n") == 1


@pytest.mark.integration
def test_the_command_line_itself_imports_no_mlx() -> None:
    program = "import sys, worker.cli; sys.exit(any(name.split('.')[0] == 'mlx' for name in sys.modules))"
    subprocess.run([sys.executable, "-c", program], check=True, cwd=Path(__file__).parents[3])
