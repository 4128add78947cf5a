"""Models as transformers stores them answer as transformers does, in any batch and under every name.

The answers are those of `tests/golden/make_hub.py`.
"""

import json
import re
import shutil
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import mlx.core as mx
import numpy as np
import pytest
import soundfile
import tokenizers
from numpy.typing import NDArray

from spool.errors import InvalidRequest, ModelUnreadable, WeightsMismatch
from worker.engine import decode_utterances
from worker.local import transcribe_files
from worker.models import (
    DecodeRequest,
    SearchOptions,
    SpeechModel,
    load_model,
    open_nemo,
    parse_config,
    torch_randn,
)
from worker.models.tokenizers.pieces import parse_pieces

pytestmark = pytest.mark.slow

GOLDEN = Path(__file__).parents[2] / "golden"
HUB = GOLDEN / "hub"
ATTENTION = ("canary", "cohere")
# torch.randn(37, generator=torch.Generator().manual_seed(37)) of torch 2.13.0
NOISE = (
    *(-0.0938475, -0.4959907, 0.9621382, 0.3939917, -0.9299811, 1.185468, 1.4125743, 0.1632587, -1.7672827),
    *(-1.3445061, 1.5448754, 0.4556259, 0.1173963, -0.7239963, -2.1713018, 0.7871151, -0.6288958, -0.0441371),
    *(-1.2322628, -0.5069863, -1.3766444, 0.0448317, -1.4370277, 1.3024021, -0.2292695, -0.0352726),
    *(-0.8839684, 0.5139781, 0.1161856, -0.7701383, 1.5392127, 0.0304485, -0.4374927, 0.6967852, 0.8080455),
    *(2.5263016, 2.5277474),
)
# float32 rounding through features and three layers, of values up to 5.
ENCODER = 1e-4
SCORE = 5e-3


@cache
def answers(name: str) -> dict[str, NDArray[Any]]:
    return dict(np.load(HUB / name / "answers.npz"))


@cache
def model(name: str) -> Any:
    return load_model(HUB / name)


@cache
def audio() -> tuple[NDArray[np.float32], ...]:
    recorded = np.load(GOLDEN / "audio.npz")
    rows = zip(recorded["audio"][:3], recorded["lengths"][:3], strict=True)
    return tuple(row[:length].astype(np.float32) / np.float32(32768) for row, length in rows)


def request_of(request: dict[str, Any]) -> DecodeRequest:
    return DecodeRequest(
        language=request.get("language", request.get("source_language")),
        translate_to=request.get("target_language"),
        punctuation=request.get("punctuation", True),
        single=True,
    )


def copy(name: str, target: Path) -> Path:
    """A folder that a test may change."""
    shutil.copytree(HUB / name, target, dirs_exist_ok=True)
    return target


def change(path: Path, **values: object) -> None:
    """Sets keys of a JSON file; None takes one out."""
    tree = json.loads(path.read_text()) | values
    path.write_text(json.dumps({key: value for key, value in tree.items() if value is not None}))


def stored(folder: Path) -> dict[str, mx.array]:
    """A folder's tensors."""
    tensors = mx.load(str(folder / "model.safetensors"))
    assert isinstance(tensors, dict)
    return tensors


def rename(folder: Path, change_name: Callable[[str], str | None]) -> None:
    """Stores the tensors under other names; None leaves one out."""
    path = folder / "model.safetensors"
    tensors = stored(path.parent)
    renamed = {new: value for name, value in tensors.items() if (new := change_name(name)) is not None}
    mx.save_safetensors(str(path), renamed)


def encode(of: Any, samples: NDArray[np.float32]) -> NDArray[np.float32]:
    encoded = of.frames.encode([samples])
    return np.array(encoded.frames[0].astype(mx.float32))[: int(encoded.lengths[0])]


def list_beams(of: SpeechModel, name: str, key: str, rows: tuple[int, ...] = (0, 1, 2)) -> list[Any]:
    request = request_of(json.loads(str(answers(name)["requests"]))[key])
    samples = [audio()[row] for row in rows]
    return decode_utterances(
        of, samples, SearchOptions(decoder="beam", beam=4, nbest=4), [request] * len(rows)
    )


def test_a_transducer_answers_as_transformers() -> None:
    expected = answers("parakeet_rnnt")
    ask = [DecodeRequest(single=True)] * 3
    found = decode_utterances(model("parakeet_rnnt"), audio(), SearchOptions(decoder="greedy"), ask)
    for row, answer in enumerate(found):
        assert (
            np.abs(encode(model("parakeet_rnnt"), audio()[row]) - expected[f"encoder.{row}"]).max() < ENCODER
        )
        best = answer.hypotheses[0]
        assert list(best.tokens) == expected[f"tokens.{row}"].tolist()
        assert list(best.times) == expected[f"frames.{row}"].tolist()
        assert model("parakeet_rnnt").tokenizer.decode(best.tokens) == str(expected[f"text.{row}"])


def write_hub_folder(name: str, folder: Path) -> None:
    """A golden model of NeMo's as `save_pretrained` would write it."""
    with open_nemo(GOLDEN / f"{name}.nemo") as archive:
        config = parse_config(archive.config, name)
        tensors = {key: archive.weights.read(key) for key in archive.weights.shapes}
        tokenizer = archive.tokenizer(None)
    assert tokenizer is not None
    pieces, _ = parse_pieces(tokenizer[1], name)
    encoder, labels = config.encoder, len(pieces)
    tree: dict[str, object] = {
        "model_type": f"parakeet_{name}",
        "vocab_size": labels + 1,
        "blank_token_id" if config.joint else "pad_token_id": labels,
        "encoder_config": {
            "hidden_size": encoder.d_model,
            "num_hidden_layers": encoder.n_layers,
            "num_attention_heads": encoder.n_heads,
            "intermediate_size": encoder.feed_forward_size,
            "attention_bias": encoder.use_bias,
            "convolution_bias": encoder.use_bias,
            "conv_kernel_size": encoder.conv_kernel_size,
            "subsampling_factor": encoder.subsampling_factor,
            "subsampling_conv_channels": encoder.subsampling_conv_channels,
            "num_mel_bins": encoder.feat_in,
            "scale_input": encoder.xscaling,
        },
    }
    if config.joint is not None and config.prediction is not None:
        tree |= {
            "decoder_hidden_size": config.prediction.pred_hidden,
            "num_decoder_layers": config.prediction.pred_rnn_layers,
            "durations": list(config.joint.durations),
        }
    folder.mkdir()
    (folder / "config.json").write_text(json.dumps(tree))
    vocabulary = {piece: token for token, piece in enumerate(pieces)}
    tokenizers.Tokenizer(tokenizers.models.BPE(vocabulary, [])).save(str(folder / "tokenizer.json"))
    pairs = (
        (r"^preprocessor\..*|.*num_batches_tracked$", ""),
        (r"^encoder\.pre_encode\.conv\.", "encoder.subsampling.layers."),
        (r"^encoder\.pre_encode\.out\.", "encoder.subsampling.linear."),
        (r"\.self_attn\.linear_(q|k|v)\.", r".self_attn.\1_proj."),
        (r"\.self_attn\.linear_out\.", ".self_attn.o_proj."),
        (r"\.self_attn\.linear_pos\.", ".self_attn.relative_k_proj."),
        (r"\.self_attn\.pos_bias_", ".self_attn.bias_"),
        (r"\.conv\.batch_norm\.", ".conv.norm."),
        (r"^decoder\.decoder_layers\.0\.", "ctc_head."),
        (r"^decoder\.prediction\.embed\.", "decoder.embedding."),
        (r"^decoder\.prediction\.dec_rnn\.lstm\.", "decoder.lstm."),
        (r"^joint\.enc\.", "encoder_projector."),
        (r"^joint\.pred\.", "decoder.decoder_projector."),
        (r"^joint\.joint_net\.2\.", "joint.head."),
    )
    renamed = {}
    for key, value in tensors.items():
        for pattern, replacement in pairs:
            key = re.sub(pattern, replacement, key)
        if key:
            renamed[key] = value
    mx.save_safetensors(str(folder / "model.safetensors"), renamed)


@pytest.mark.parametrize("name", ["tdt", "ctc"])
def test_the_hubs_layout_answers_as_nemos_archive(tmp_path: Path, name: str) -> None:
    write_hub_folder(name, tmp_path / name)
    archive, folder = load_model(GOLDEN / f"{name}.nemo"), load_model(tmp_path / name)
    ask = [DecodeRequest(single=True)] * 3
    for options in (SearchOptions(decoder="greedy"), SearchOptions(decoder="beam", beam=4, nbest=4)):
        theirs, ours = (decode_utterances(each, audio(), options, ask) for each in (archive, folder))
        for expected, found in zip(theirs, ours, strict=True):
            assert [each.tokens for each in found.hypotheses] == [each.tokens for each in expected.hypotheses]
            assert found.hypotheses[0].times == expected.hypotheses[0].times
    # NeMo's own filters are in its file; those that are computed differ in the last bits.
    gaps = (np.abs(encode(archive, row) - encode(folder, row)).max() for row in audio())
    assert max(gaps) < ENCODER


@pytest.mark.parametrize("name", ATTENTION)
def test_an_attention_decoder_answers_as_transformers(name: str) -> None:
    expected = answers(name)
    for key, request in json.loads(str(expected["requests"])).items():
        asked = request_of(request)
        assert list(model(name).prepare(asked).previous) == expected[f"prompt.0.{key}"].tolist()
        greedy = decode_utterances(model(name), audio(), SearchOptions(decoder="greedy"), [asked] * 3)
        for row, (answer, listed) in enumerate(zip(greedy, list_beams(model(name), name, key), strict=True)):
            place = f"{row}.{key}"
            assert np.abs(encode(model(name), audio()[row]) - expected[f"encoder.{place}"]).max() < ENCODER
            assert list(answer.hypotheses[0].tokens) == expected[f"greedy.{place}"].tolist()
            lists = [[token for token in own if token >= 0] for own in expected[f"beam.{place}"].tolist()]
            assert [list(each.tokens) for each in listed.hypotheses] == lists
            scores = [each.score for each in listed.hypotheses]
            assert np.abs(np.array(scores) - expected[f"beam_score.{place}"]).max() < SCORE


@pytest.mark.parametrize("name", ATTENTION)
def test_an_answer_does_not_tell_its_batch(name: str) -> None:
    key = next(iter(json.loads(str(answers(name)["requests"]))))
    together = list_beams(model(name), name, key, (2, 0, 1))
    for place, row in enumerate((2, 0, 1)):
        alone = list_beams(model(name), name, key, (row,))[0]
        assert alone.hypotheses == together[place].hypotheses


def to_plain_names(name: str) -> str:
    """As the published file of Cohere Transcribe has them."""
    return name.removeprefix("model.")


def to_memory_names(name: str) -> str:
    """As transformers has them in memory, written out by hand."""
    pairs = (
        (r"model\.encoder_decoder_proj\.", "model.decoder.proj."),
        (r"model\.transf_decoder\._embedding\.position_embedding\.pos_enc", "model.decoder.pos_emb.weight"),
        (r"model\.transf_decoder\._embedding\.token_embedding\.", "model.decoder.embed_tokens."),
        (r"model\.transf_decoder\._embedding\.layer_norm\.", "model.decoder.embedding_layernorm."),
        (r"model\.transf_decoder\._decoder\.final_layer_norm\.", "model.decoder.norm."),
        (r"model\.transf_decoder\._decoder\.layers\.", "model.decoder.layers."),
        (r"first_sub_layer\.out_projection", "self_attn.o_proj"),
        (r"second_sub_layer\.out_projection", "encoder_attn.o_proj"),
        (r"first_sub_layer\.(query|key|value)_net", lambda m: f"self_attn.{m[1][0]}_proj"),
        (r"second_sub_layer\.(query|key|value)_net", lambda m: f"encoder_attn.{m[1][0]}_proj"),
        (r"third_sub_layer\.dense_in", "mlp.fc1"),
        (r"third_sub_layer\.dense_out", "mlp.fc2"),
        (r"layer_norm_1", "input_layernorm"),
        (r"layer_norm_2", "post_attention_layernorm"),
        (r"layer_norm_3", "final_layernorm"),
        (r"log_softmax\.mlp\.layer0\.", "proj_out."),
        (r"pre_encode\.conv\.", "subsampling.layers."),
        (r"pre_encode\.out\.", "subsampling.linear."),
        (r"self_attn\.linear_(q|k|v)\.", r"self_attn.\1_proj."),
        (r"self_attn\.linear_out\.", "self_attn.o_proj."),
        (r"self_attn\.linear_pos\.", "self_attn.relative_k_proj."),
        (r"self_attn\.pos_bias_", "self_attn.bias_"),
        (r"conv\.batch_norm\.", "conv.norm."),
    )
    for pattern, replacement in pairs:
        name = re.sub(pattern, replacement, name)
    return name


@pytest.mark.parametrize("scheme", [to_plain_names, to_memory_names])
def test_every_naming_of_cohere_is_the_same_model(tmp_path: Path, scheme: Callable[[str], str]) -> None:
    folder = copy("cohere", tmp_path / "cohere")
    rename(folder, scheme)
    other: Any = load_model(folder)
    samples = audio()[1]
    assert np.array_equal(encode(other, samples), encode(model("cohere"), samples))
    ours, theirs = (list_beams(each, "cohere", "en", (1,))[0] for each in (other, model("cohere")))
    assert ours.hypotheses == theirs.hypotheses


def test_a_head_that_is_not_stored_is_the_embedding(tmp_path: Path) -> None:
    folder = copy("cohere", tmp_path / "cohere")
    rename(folder, lambda name: None if name == "log_softmax.mlp.layer0.weight" else name)
    tied: Any = load_model(folder)
    rows = stored(folder)["model.transf_decoder._embedding.token_embedding.weight"]
    hidden = mx.random.normal((1, rows.shape[1]))
    bias = stored(folder)["log_softmax.mlp.layer0.bias"]
    expected = hidden @ rows.astype(mx.float32).T + bias.astype(mx.float32)
    assert mx.allclose(tied.head.logits(hidden), expected, atol=1e-4)
    untied = list_beams(model("cohere"), "cohere", "en", (1,))[0]
    # As transformers has it, a stored head counts where the configuration ties it.
    again = copy("cohere", tmp_path / "again")
    change(again / "config.json", tie_word_embeddings=True)
    assert list_beams(load_model(again), "cohere", "en", (1,))[0].hypotheses == untied.hypotheses


def test_long_audio_is_cut_where_it_is_quietest() -> None:
    rate = 16_000
    noise = np.random.default_rng(1).normal(size=80 * rate).astype(np.float32)
    noise[31 * rate + 8000 : 31 * rate + 9600] *= 0.01  # begins on a multiple of a tenth of a second
    noise[62 * rate : 62 * rate + 3200] *= 0.01  # the first of equals
    noise[62 * rate : 62 * rate + 1600] = noise[62 * rate + 1600 : 62 * rate + 3200]
    found = model("cohere").split(noise)
    second = 31 * rate + 8000
    assert [(each.start, each.stop) for each in found[:1]] == [(0, second)]
    # From there on windows begin 30 s later, in steps of a tenth.
    assert found[1].start == second
    assert abs(found[1].stop - 62 * rate) <= 1600
    assert found[-1].stop == len(noise)
    assert [(each.start, each.stop) for each in model("cohere").split(noise[: 35 * rate])] == [(0, 35 * rate)]


def test_long_audio_is_answered_window_by_window() -> None:
    cohere, rate = model("cohere"), 16_000
    rows = [
        audio()[2],
        np.zeros(29 * rate, np.float32) + 1e-4 * np.random.default_rng(2).normal(size=29 * rate),
    ]
    samples = np.concatenate([*rows, audio()[0]]).astype(np.float32)
    windows = cohere.split(samples)
    assert len(windows) == 2
    ask = DecodeRequest(language="en", single=True)
    parts = [samples[each.start : each.stop] for each in windows]
    alone = decode_utterances(cohere, parts, SearchOptions(decoder="greedy"), [ask] * 2)
    whole = decode_utterances(cohere, [samples], SearchOptions(decoder="greedy"), [ask])[0]
    assert whole.hypotheses[0].tokens == tuple(token for each in alone for token in each.hypotheses[0].tokens)
    texts = [cohere.tokenizer.decode(each.hypotheses[0].tokens).strip() for each in alone]
    assert whole.text == " ".join(text for text in texts if text)


@pytest.mark.parametrize("clip", [4.0, 35.0])
def test_recordings_are_cut_for_it_as_for_jobs(tmp_path: Path, clip: float) -> None:
    folder = copy("cohere", tmp_path / "cohere")
    settings = json.loads((folder / "processor_config.json").read_text())
    settings["feature_extractor"] |= {"max_audio_clip_s": clip, "overlap_chunk_second": 1.0}
    (folder / "processor_config.json").write_text(json.dumps(settings))
    soundfile.write(tmp_path / "talk.wav", np.concatenate([audio()[2]] * 8), 16_000)
    ask = DecodeRequest(language="en")
    (result,) = transcribe_files([tmp_path / "talk.wav"], str(folder), SearchOptions(), ask=ask)
    assert result.transcript is not None
    assert result.transcript.text
    assert len(result.chunks) > 40 / clip
    assert max(each.end - each.start for each in result.chunks) <= clip * 16_000


def test_the_dither_is_torchs() -> None:
    assert np.abs(torch_randn(37, 37) - np.array(NOISE, np.float32)).max() < 1e-6


def test_a_tokenizer_of_as_many_tokens_of_another_model_is_refused(tmp_path: Path) -> None:
    folder = copy("parakeet_rnnt", tmp_path / "parakeet_rnnt")
    tree = json.loads((folder / "tokenizer.json").read_text())
    (blank,) = (each for each in tree["added_tokens"] if each["content"] == "<blank>")
    blank["content"] = "<pad>"
    (folder / "tokenizer.json").write_text(json.dumps(tree))
    with pytest.raises(ModelUnreadable, match=r"tokenizer.json: the tokenizer has no token <blank>, but"):
        load_model(folder)


@pytest.mark.parametrize(
    ("name", "file", "values", "message"),
    [
        (
            "cohere",
            "config.json",
            {"num_hidden_layers": 3},
            r"model.safetensors: the weights do not fit .* missing",
        ),
        ("cohere", "config.json", {"hidden_act": "silu"}, r"config.json: hidden_act is 'silu'"),
        ("cohere", "config.json", {"vocab_size": 400}, r"tokenizer.json: the tokenizer has no token 300"),
        ("cohere", "config.json", {"vocab_size": 280}, r"tokenizer.json: the tokenizer has a token 299"),
        (
            "cohere",
            "config.json",
            {"encoder_config": {"hidden_size": 50}},
            r"config.json: encoder_config: hidden_",
        ),
        (
            "cohere",
            "generation_config.json",
            {"eos_token_id": 5},
            r"tokenizer.json: <\|endoftext\|> is token 3",
        ),
        ("cohere", "generation_config.json", {"repetition_penalty": 1.2}, r"repetition_penalty is 1.2"),
        ("cohere", "generation_config.json", {"early_stopping": True}, r"early_stopping is True"),
        ("cohere", "config.json", {"model_type": "bark"}, r"config.json: model_type is 'bark'; no family"),
        ("canary", "config.json", {"d_model": 48}, r"config.json: has d_model, so it was converted before"),
        ("canary", "config.json", {"vocab_size": 301}, r"config.json: vocab_size is 301"),
        ("parakeet_rnnt", "config.json", {"blank_token_id": 2}, r"config.json: blank_token_id is 2"),
        ("parakeet_rnnt", "config.json", {"vocab_size": 150, "blank_token_id": 149}, r"has no token 129"),
        ("parakeet_rnnt", "config.json", {"hidden_act": "gelu"}, r"config.json: hidden_act is 'gelu'"),
        (
            "parakeet_rnnt",
            "config.json",
            {"model_type": "parakeet_ctc"},
            r"processor_config.json: decoder_type is 'rnnt'",
        ),
        (
            "parakeet_rnnt",
            "processor_config.json",
            {"feature_extractor": {"feature_size": 128}},
            r"feature_size is 128, but config.json's num_mel_bins is 80",
        ),
        (
            "parakeet_rnnt",
            "processor_config.json",
            {"feature_extractor": {"sampling_rate": 0}},
            r"feature_extractor.sampling_rate is 0; this engine computes 16000",
        ),
        (
            "canary",
            "processor_config.json",
            {"feature_extractor": {"hop_length": 1.5}},
            r"feature_extractor.hop_length is 1.5, not a size",
        ),
        (
            "cohere",
            "processor_config.json",
            {"feature_extractor": "x"},
            r"feature_extractor is 'x', not a sect",
        ),
        (
            "cohere",
            "processor_config.json",
            {"processor_class": "CanaryProcessor"},
            r"processor_config.json: processor_class is CanaryProcessor, but config.json has a cohere_asr",
        ),
        (
            "canary",
            "tokenizer_config.json",
            {"processor_class": "CohereAsrProcessor"},
            r"tokenizer_config.json: processor_class is CohereAsrProcessor, but config.json has a canary",
        ),
        (
            "cohere",
            "generation_config.json",
            {"eos_token_id": "x"},
            r"generation_config.json: eos_token_id is 'x', not a token",
        ),
        (
            "cohere",
            "generation_config.json",
            {"decoder_start_token_id": 4000},
            r"generation_config.json: decoder_start_token_id is 4000, but the model has \d+ tokens",
        ),
        (
            "canary",
            "generation_config.json",
            {"max_new_tokens": "many"},
            r"generation_config.json: max_new_tokens is 'many', not a size",
        ),
    ],
)
def test_what_contradicts_itself_is_named(
    tmp_path: Path, name: str, file: str, values: dict[str, object], message: str
) -> None:
    folder = copy(name, tmp_path / name)
    change(folder / file, **values)
    with pytest.raises((ModelUnreadable, WeightsMismatch), match=message) as raised:
        load_model(folder)
    assert "\n" not in str(raised.value)


def test_a_tokenizer_of_another_model_is_named(tmp_path: Path) -> None:
    folder = copy("cohere", tmp_path / "cohere")
    shutil.copy(HUB / "parakeet_rnnt" / "tokenizer.json", folder)
    with pytest.raises(ModelUnreadable, match=r"tokenizer.json: the tokenizer has no token 129"):
        load_model(folder)


def test_an_rnnt_with_the_tokenizer_of_a_tdt_alone_is_refused(tmp_path: Path) -> None:
    folder = copy("parakeet_rnnt", tmp_path / "parakeet_rnnt")
    tree = json.loads((folder / "tokenizer.json").read_text())
    (unknown,) = (each for each in tree["added_tokens"] if each["id"] == 0)
    (piece,) = (each for each, token in tree["model"]["vocab"].items() if token == 1)
    merges = [each for each in tree["model"]["merges"] if piece not in (*each, "".join(each))]
    del tree["model"]["vocab"][piece]
    tree["model"] |= {"vocab": {"<pad>": 1, **tree["model"]["vocab"]}, "merges": merges}
    tree["added_tokens"].append(unknown | {"id": 1, "content": "<pad>"})
    (folder / "tokenizer.json").write_text(json.dumps(tree))
    with pytest.raises(
        ModelUnreadable, match=r"tokenizer.json: the tokenizer has <pad> at 1, but the model's pad"
    ):
        load_model(folder)


def test_older_conversions_of_canary_are_refused_by_name(tmp_path: Path) -> None:
    folder = copy("canary", tmp_path / "canary")
    rename(folder, lambda name: name.replace("embedding_layernorm", "layernorm_embedding"))
    with pytest.raises(
        WeightsMismatch, match=r"layernorm_embedding\.\w+ is a name of before transformers 5.24"
    ):
        load_model(folder)


@pytest.mark.parametrize("interleaved", [False, True])
def test_a_stored_table_of_positions_must_be_in_its_order(tmp_path: Path, interleaved: bool) -> None:
    folder = copy("canary", tmp_path / "canary")
    path = folder / "model.safetensors"
    angles = np.arange(256)[:, None] * 10_000.0 ** (-np.arange(0, 48, 2) / 48)
    halves = np.concatenate([np.sin(angles), np.cos(angles)], axis=1)
    turns = np.stack([np.sin(angles), np.cos(angles)], axis=2).reshape(256, 48)
    table = mx.array((turns if interleaved else halves).astype(np.float32))
    name = "model.decoder.pos_emb.positional_embedding"
    mx.save_safetensors(str(path), stored(path.parent) | {name: table})
    if interleaved:
        with pytest.raises(WeightsMismatch, match="does not hold all sines and then all cosines"):
            load_model(folder)
    else:
        assert list_beams(load_model(folder), "canary", "en", (1,)) == list_beams(
            model("canary"), "canary", "en", (1,)
        )


def test_weights_with_nan_and_options_that_are_not_taken_are_named(tmp_path: Path) -> None:
    folder = copy("parakeet_rnnt", tmp_path / "parakeet")
    path = folder / "model.safetensors"
    tensors = stored(path.parent)
    tensors["joint.head.bias"] = tensors["joint.head.bias"] * mx.nan
    mx.save_safetensors(str(path), tensors)
    with pytest.raises(WeightsMismatch, match=r"joint.head.bias \[129\] holds 129 numbers"):
        load_model(folder)
    for ask, message in (
        (DecodeRequest(language="ru"), "language: cohere does not know 'ru'"),
        (DecodeRequest(prompt="lamp"), "prompt: cohere takes no such option"),
        (DecodeRequest(translate_to="de"), "translate_to: cohere takes no such option"),
    ):
        with pytest.raises(InvalidRequest, match=message):
            model("cohere").prepare(ask)


def test_blanks_row_is_read_first_where_it_is_not_zero(tmp_path: Path) -> None:
    folder = copy("parakeet_rnnt", tmp_path / "parakeet")
    path = folder / "model.safetensors"
    tensors = stored(path.parent)
    rows = tensors["decoder.embedding.weight"].astype(mx.float32)
    assert not mx.any(rows[-1])
    rows[-1] = mx.random.normal((rows.shape[1],))
    mx.save_safetensors(str(path), tensors | {"decoder.embedding.weight": rows})
    other: Any = load_model(folder)
    started, _ = other.transducer.start(1)
    zero = other.network.decoder.prediction["dec_rnn"]
    state = mx.zeros((1, 2, rows.shape[1]))
    read, _ = zero(zero.lstm[0].entering(rows[-1:]), type(other.transducer.start(1)[1])(state, state))
    assert mx.allclose(started, other.network.joint.pred(read), atol=1e-5)
    assert not mx.allclose(started, model("parakeet_rnnt").transducer.start(1)[0], atol=1e-3)
