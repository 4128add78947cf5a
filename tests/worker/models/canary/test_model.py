"""Loading in both layouts, refusals, costs, and utterances through the whole search."""

import json
from pathlib import Path

import mlx.core as mx
import numpy as np
import pytest
import soundfile

from spool.errors import InvalidRequest, ModelUnreadable, WeightsMismatch
from tests.golden.canary_reference import ReferenceCanary, beam_search
from tests.worker.models.canary.fixtures import (
    FLASH,
    SINGLE,
    load,
    sound,
    tiny_tensors,
    tiny_tree,
    write_archive,
    write_folder,
)
from worker.decode import AttentionSearch, KeptBeam, SearchRequest
from worker.engine import check_decoding, decode_utterances
from worker.local import transcribe_files
from worker.models import CanaryModel, DecodeRequest, SearchOptions, load_model

pytestmark = pytest.mark.slow

SECONDS = (3.1, 7.0, 1.3, 0.4)
TOLERANCE = 2e-3


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> CanaryModel:
    return load(write_folder(tmp_path_factory.mktemp("single")))


@pytest.fixture(scope="module")
def flash(tmp_path_factory: pytest.TempPathFactory) -> CanaryModel:
    return load(write_archive(tmp_path_factory.mktemp("flash") / "flash.nemo", FLASH))


def test_a_folder_and_an_archive_are_the_same_model(model: CanaryModel, tmp_path: Path) -> None:
    archived = load_model(write_archive(tmp_path / "single.nemo"))
    assert isinstance(archived, CanaryModel)
    samples = [sound(seconds, seed) for seed, seconds in enumerate(SECONDS)]
    for own, other in zip(model.encode(samples), archived.encode(samples), strict=True):
        assert np.array_equal(np.array(own.batch.frames), np.array(other.batch.frames))
    assert archived.info.files.keys() == {"weights"}
    assert {"weights", "config"} < model.info.files.keys()
    assert model.info.digest != archived.info.digest
    assert model.info.chunking.max == 40.0


def test_every_pass_is_the_restatement(model: CanaryModel) -> None:
    tensors = tiny_tensors()
    plain = ReferenceCanary(tensors, layers=2, heads=2)
    for encoded in model.encode([sound(seconds, seed) for seed, seconds in enumerate(SECONDS)]):
        frames = np.array(encoded.batch.frames[encoded.index][: encoded.length])
        tokens = [349, 7, 4, 16, 30, 31, 200]
        expected = plain.run(tokens, frames)[0]
        logs = np.array(model.head.log_probabilities(encoded, tokens[:2], [tokens[2:]])[0])
        chosen = expected[np.arange(1, 6), tokens[2:]]
        # float32 rounding through two layers.
        assert np.abs(logs - chosen).max() < 1e-4


@pytest.mark.parametrize(("beam", "alpha"), [(1, 0.0), (3, 0.0), (4, 0.7), (8, 1.0)])
def test_every_list_is_the_restatements_in_any_batch(model: CanaryModel, beam: int, alpha: float) -> None:
    plain, ends = ReferenceCanary(tiny_tensors(), layers=2, heads=2), model.end_rule.ends
    encoded = model.encode([sound(seconds, seed) for seed, seconds in enumerate(SECONDS)])
    prompts = [(7, 4), (7, 4, 16, 21, 21), (4,), (7, 300, 301, 302, 4, 16)]
    asked = [
        SearchRequest(row, window, prompt, limit=12)
        for row, (window, prompt) in enumerate(zip(encoded, prompts, strict=True))
    ]
    expected = [
        beam_search(
            plain,
            np.array(each.encoded.batch.frames[each.encoded.index][: each.encoded.length]),
            list(each.prompt),
            ends,
            13,
            beam,
            alpha,
        )
        for each in asked
    ]
    for width, order in ((32, [2, 0, 3, 1]), (2, [3, 2, 1, 0]), (1, [0, 1, 2, 3])):
        search = AttentionSearch(model.head, model.rules, KeptBeam(ends, beam, alpha, 1), width)
        for answer in search.run([asked[row] for row in order]):
            own = expected[int(str(answer.key))]
            assert [list(each.tokens) for each in answer.hypotheses] == [tokens for tokens, _ in own]
            gaps = [abs(each.score - score) for each, (_, score) in zip(answer.hypotheses, own, strict=True)]
            assert max(gaps) < TOLERANCE


def test_a_transcript_does_not_tell_its_batch(model: CanaryModel) -> None:
    samples = [sound(seconds, seed) for seed, seconds in enumerate(SECONDS)]
    requests = [
        DecodeRequest(language=code, prompt=context, single=True)
        for code, context in (("en", ""), ("de", "the work"), ("fr", ""), (None, "a licence of the program"))
    ]
    options = SearchOptions(decoder="beam", beam=3, nbest=3)
    alone = [
        decode_utterances(model, [row], options, [ask])[0] for row, ask in zip(samples, requests, strict=True)
    ]
    order = [2, 0, 3, 1]
    together = decode_utterances(
        model, [samples[at] for at in order], options, [requests[at] for at in order]
    )
    for at, answer in zip(order, together, strict=True):
        assert [each.tokens for each in answer.hypotheses] == [each.tokens for each in alone[at].hypotheses]
        assert answer.spoken == alone[at].spoken
        assert answer.hypotheses[0].times == alone[at].hypotheses[0].times
    assert len({each.hypotheses[0].tokens for each in alone}) > 1


def test_files_as_they_are_give_the_search_lists_in_its_order(tmp_path: Path) -> None:
    path, prompt = write_archive(tmp_path / "single.nemo"), '{"pnc": "no", "target_lang": "de"}'
    rows = [(1000 * sound(seconds, seed)).astype(np.int16) for seed, seconds in enumerate(SECONDS)]
    files = [tmp_path / f"{row}.wav" for row in range(len(rows))]
    for file, row in zip(files, rows, strict=True):
        soundfile.write(file, row, 16_000)
    options = SearchOptions(decoder="beam", beam=6, nbest=4, length_penalty=1.5)
    ask = DecodeRequest(prompt=prompt, single=True)
    results = transcribe_files(files, str(path), options, chunk=False, ask=ask)

    model = load(path)
    tokens = model.prepare(ask).previous
    for result, row in zip(results, rows, strict=True):
        (window,) = model.encode([row.astype(np.float32) / np.float32(32768)])
        asked = SearchRequest(0, window, tokens, limit=window.length + 50 - len(tokens))
        beams = KeptBeam(model.end_rule.ends, 6, 1.5, 1)
        (answer,) = AttentionSearch(model.head, model.rules, beams).run([asked])
        found = answer.hypotheses[:4]
        assert [each.tokens for each, _ in result.nbest] == [each.tokens for each in found]
        assert [each.score for each, _ in result.nbest] == pytest.approx(
            [each.score for each in found], abs=1e-3
        )
        assert result.transcript is not None
        text = model.tokenizer.decode(answer.hypotheses[answer.answer].tokens).strip()
        assert result.transcript.text == text


def test_stamps_are_asked_for_where_the_model_writes_them(flash: CanaryModel, model: CanaryModel) -> None:
    stamp = flash.tokenizer.special("<|timestamp|>")
    assert stamp in flash.prepare(DecodeRequest()).previous
    assert stamp not in flash.prepare(DecodeRequest(timestamps="off")).previous
    assert stamp not in flash.prepare(DecodeRequest(single=True)).previous
    assert flash.capabilities.timing == "tokens"
    # This one has no stamps and, in a folder, no aligner: its chunks hardly overlap.
    assert model.capabilities.timing == "none"
    assert model.info.chunking.overlap < 1 < flash.info.chunking.overlap
    with pytest.raises(InvalidRequest, match=r"timestamps: .* takes no such option"):
        model.prepare(DecodeRequest(timestamps="on"))


@pytest.mark.parametrize(
    ("options", "asked", "words"),
    [
        (SearchOptions(decoder="beam", patience=2.0), DecodeRequest(), "patience: .* leave it at 1"),
        (SearchOptions(scores="fixed"), DecodeRequest(), "scores"),
        (SearchOptions(), DecodeRequest(hotwords="so"), "hotwords: .* takes no such option"),
        (SearchOptions(), DecodeRequest(audio_context="full"), "audio_context: .* takes no such option"),
        (SearchOptions(), DecodeRequest(language="xx"), "language: .* does not know 'xx'"),
        (SearchOptions(), DecodeRequest(translate_to="xx"), "translate_to: .* does not know 'xx'"),
        (SearchOptions(), DecodeRequest(prompt="the work " * 60), "prompt: it has .* takes at most 80"),
    ],
)
def test_what_it_cannot_do_is_refused_by_name(
    model: CanaryModel, options: SearchOptions, asked: DecodeRequest, words: str
) -> None:
    with pytest.raises(InvalidRequest, match=words):
        check_decoding(model, options, asked)


def test_cost_grows_with_the_decoder(model: CanaryModel) -> None:
    short, wide, long = model.cost(16_000), model.cost(16_000, 8), model.cost(320_000)
    assert short.frames == wide.frames < long.frames == model.frames_in(320_000)
    assert short.bytes < wide.bytes
    assert short.bytes < long.bytes
    assert model.size >= sum(value.nbytes for name, value in tiny_tensors().items() if "sub_layer" in name)


def test_weights_that_do_not_fit_are_named(tmp_path: Path) -> None:
    folder = write_folder(tmp_path / "wrong")
    tree = tiny_tree()
    tree["transf_decoder"]["config_dict"] |= {"num_layers": 3, "inner_size": 100}
    (folder / "config.json").write_text(json.dumps(tree))
    with pytest.raises(WeightsMismatch) as caught:
        load(folder)
    assert "layers.0.third_sub_layer.dense_in.weight: expected [100, 64], found [96, 64]" in str(caught.value)
    assert "missing: transf_decoder._decoder.layers.2." in str(caught.value)
    tensors = {name: mx.array(value) for name, value in tiny_tensors().items()}
    mx.save_safetensors(str(folder / "model.safetensors"), tensors | {"encoder.stray": mx.zeros(2)})
    (folder / "config.json").write_text(json.dumps(tiny_tree()))
    with pytest.raises(WeightsMismatch, match=r"surplus: encoder.stray \[2\]"):
        load(folder)


@pytest.mark.parametrize(
    ("section", "key", "value", "words"),
    [
        (None, "prompt_format", "canary3", "prompt_format is 'canary3'"),
        ("transf_encoder", "num_layers", 2, "transf_encoder.num_layers is 2"),
        ("head", "num_layers", 2, "head.num_layers is 2"),
        ("transf_decoder", "pre_ln_final_layer_norm", False, "pre_ln_final_layer_norm is False"),
    ],
)
def test_a_setting_that_is_not_computed_is_named(
    tmp_path: Path, section: str | None, key: str, value: object, words: str
) -> None:
    tree = tiny_tree()
    (tree if section is None else tree[section])[key] = value
    folder = write_folder(tmp_path / "other")
    (folder / "config.json").write_text(json.dumps(tree))
    with pytest.raises(ModelUnreadable, match=words):
        load(folder)


def test_a_tokenizer_that_is_missing_is_named(tmp_path: Path) -> None:
    folder = write_folder(tmp_path / "mute", FLASH)
    for file in folder.glob("*tokenizer.model"):
        file.unlink()
    with pytest.raises(ModelUnreadable, match=r"tokenizer.langs.spl_tokens.model_path names .* missing"):
        load(folder)


def test_an_untied_head_is_its_own_table(tmp_path: Path) -> None:
    folder = write_folder(tmp_path / "untied")
    tensors = dict(tiny_tensors(SINGLE))
    tensors["log_softmax.mlp.layer0.weight"] = tensors["log_softmax.mlp.layer0.weight"][::-1].copy()
    mx.save_safetensors(
        str(folder / "model.safetensors"), {name: mx.array(value) for name, value in tensors.items()}
    )
    untied = load(folder)
    (encoded,) = untied.encode([sound(1.0)])
    frames = np.array(encoded.batch.frames[0][: encoded.length])
    expected = ReferenceCanary(tensors, 2, 2).run([7, 4, 16], frames)[0]
    logs = np.array(untied.head.log_probabilities(encoded, [7], [[4, 16]])[0])
    assert np.abs(logs - expected[[0, 1], [4, 16]]).max() < 1e-4
