"""The phoneme family against the restatement of its makers' network, and files that are not its own."""

from pathlib import Path

import numpy as np
import pytest

from spool.catalogue.store import fetch_model
from spool.errors import ModelUnreadable, SpoolError, UnknownModel, WeightsMismatch
from spool.settings import load_settings
from tests.golden.make_hama import SYMBOLS, log_probs, pack, random_tensors, write_model
from worker.decode.search import search
from worker.models import SearchOptions, SpeechModel, load_model
from worker.models.artifacts.hama import read_hama

TOLERANCE = 5e-3
"""Of a log-probability: features are rounded to 16 bits, and a float32 product that is one bit off may round
one of them the other way, by 0.008. The library itself is 2.6e-3 from the restatement."""
AUDIO = np.load(Path(__file__).parents[3] / "golden" / "audio.npz")


def utterances() -> list[np.ndarray]:
    stored = zip(AUDIO["audio"], AUDIO["lengths"], strict=True)
    return [row[:length].astype(np.float32) / 32768 for row, length in stored]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_model(tmp_path_factory.mktemp("hama"))


@pytest.fixture(scope="module")
def model(folder: Path) -> SpeechModel:
    return load_model(folder)


def heard(model: SpeechModel, samples: list[np.ndarray]) -> list[np.ndarray]:
    encoded = model.encode(samples)
    frames = [encoded.frames[row, :length] for row, length in enumerate(encoded.lengths.tolist())]
    return [np.array(model.heads["ctc"].log_probs(each)) for each in frames]


def test_every_log_probability_is_the_restatements(model: SpeechModel) -> None:
    tensors = random_tensors()
    odd = [wave[:size] for wave, size in zip(utterances(), (400, 16_001, 20_320, 399, 2), strict=True)]
    # Longer than the queries that attention takes at once.
    samples = [*utterances(), *odd, np.concatenate(utterances())[: 12 * 16_000]]
    for wave, found in zip(samples, heard(model, samples), strict=True):
        expected = log_probs(tensors, wave)
        assert found.shape == expected.shape == ((len(wave) // 160) // 2 + 1, len(SYMBOLS) + 2)
        np.testing.assert_allclose(found, expected, atol=TOLERANCE)


def test_an_utterances_answer_does_not_depend_on_its_batch(model: SpeechModel) -> None:
    together = heard(model, utterances())
    for wave, found in zip(utterances(), together, strict=True):
        np.testing.assert_array_equal(heard(model, [wave])[0], found)
    assert model.encode([np.zeros(0, np.float32)]).lengths.tolist() == [0]


def test_the_engine_writes_symbols_and_takes_no_language(model: SpeechModel) -> None:
    assert model.capabilities.languages == frozenset()
    assert model.info.chunking.max == 24.0
    (answer,) = search(model, model.encode(utterances()[:1]), SearchOptions(head="ctc"))
    best = log_probs(random_tensors(), utterances()[0]).argmax(-1)
    kept = [
        int(one)
        for one, before in zip(best, [-1, *best[:-1]], strict=True)
        if one not in (before, len(SYMBOLS) + 1)
    ]
    assert list(answer[0].tokens) == kept
    text = model.tokenizer.decode(kept)
    assert model.tokenizer.decode(model.tokenizer.encode("hɛloʊ wɝld")) == "hɛloʊ wɝld"
    assert text == "".join(text.split("<wb>"))


def _damaged(folder: Path, change: str) -> Path:
    tensors = random_tensors()
    data = pack(tensors)
    if change == "missing":
        del tensors["onnx::MatMul_203"]
        data = pack(tensors)
    elif change == "another shape":
        data = pack({**tensors, "onnx::Conv_111": np.zeros(3, np.float32)})
    elif change == "surplus":
        data = pack({**tensors, "more": np.zeros(3, np.float32)})
    elif change == "cut":
        data = data[: len(data) // 2]
    elif change == "cut in its table":
        data = data[:300]
    elif change == "of something else":
        data = b"RIFF" + bytes(100)
    elif change == "another network":
        data = pack({"a": np.zeros((2, 2), np.float32)})
    (folder / "asr_waveform.hama").write_bytes(data)
    return folder


@pytest.mark.parametrize(
    ("change", "error", "says"),
    [
        ("missing", WeightsMismatch, "missing: acoustic_model.model.blocks.1.ffn2.fc2.weight"),
        (
            "another shape",
            WeightsMismatch,
            r"of another shape: .*conv.depthwise.bias: expected \[16\], found \[3\]",
        ),
        ("surplus", WeightsMismatch, r"surplus: more \[3\]"),
        ("cut", ModelUnreadable, "truncated or damaged: .* lies beyond the end of the file"),
        ("cut in its table", ModelUnreadable, "truncated or damaged"),
        ("of something else", ModelUnreadable, "not a file of packed weights"),
        ("another network", WeightsMismatch, "not the tensors of hama's recogniser"),
    ],
)
def test_files_that_do_not_fit_say_what_and_where(
    tmp_path: Path, change: str, error: type[SpoolError], says: str
) -> None:
    with pytest.raises(error, match=f"asr_waveform.hama: .*{says}"):
        load_model(_damaged(write_model(tmp_path), change))


def test_weights_without_symbols_are_refused(tmp_path: Path) -> None:
    (write_model(tmp_path) / "g2p_vocab.json").unlink()
    with pytest.raises(UnknownModel, match=r"needs g2p_vocab\.json beside it"):
        load_model(tmp_path)
    (tmp_path / "g2p_vocab.json").write_text('{"decoder": 3}')
    with pytest.raises(ModelUnreadable, match="has no list of symbols"):
        load_model(tmp_path)
    (tmp_path / "g2p_vocab.json").write_text('{"decoder": ["a", "b"]}')
    with pytest.raises(WeightsMismatch, match=r"of another shape: acoustic_model\.model\.proj\.weight"):
        load_model(tmp_path)


@pytest.mark.integration
@pytest.mark.timeout(600)
def test_the_packages_own_weights_hear_what_the_library_hears() -> None:
    """Fetches the catalogue's packages once, by their hashes."""
    folder = Path(fetch_model("hama-phonemes", load_settings()))
    tensors = {
        name: np.asarray(value) for name, value in read_hama(folder / "asr_waveform.hama").tensors.items()
    }
    real = load_model(folder)
    assert len(real.tokenizer.pieces) == 190
    for wave, found in zip(utterances(), heard(real, utterances()), strict=True):
        np.testing.assert_allclose(found, log_probs(tensors, wave), atol=TOLERANCE)
