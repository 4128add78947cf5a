"""Qwen3-ASR's folders in every layout, what is asked of the model, and what is said of broken folders."""

import gc
import json
from pathlib import Path
from typing import Any

import mlx.core as mx
import numpy as np
import pytest

from spool.errors import InvalidRequest, ModelError, SpoolError
from tests.worker.models.qwen3_asr.tiny import ADDED, CONFIG, weights, write, write_folder
from worker.decode import read_utterances
from worker.models import DecodeRequest, QwenModel, SearchOptions, load_model

RANDOM = np.random.default_rng(5)
SOUNDS = [RANDOM.normal(0, 0.1, size).astype(np.float32) for size in (4000, 30_000, 52_000)]
GREEDY, BEAM = SearchOptions(), SearchOptions(decoder="beam", beam=3, nbest=3)
SINGLE = DecodeRequest(single=True)

Heard = list[list[tuple[tuple[int, ...], float]]]


def hear(folder: Path, options: SearchOptions = BEAM, request: DecodeRequest = SINGLE) -> Heard:
    answers = read_utterances(load_qwen(folder), SOUNDS, options, [request] * len(SOUNDS))
    return [[(each.tokens, each.score) for each in answer.hypotheses] for answer in answers]


def load_qwen(folder: Path) -> QwenModel:
    model = load_model(folder)
    assert isinstance(model, QwenModel)
    return model


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_folder(tmp_path_factory.mktemp("qwen"))


@pytest.fixture(scope="module")
def heard(folder: Path) -> Heard:
    return hear(folder)


@pytest.mark.parametrize(
    "layout",
    [{"shards": 3}, {"original": True}, {"slow": True}, {"shards": 2, "original": True, "slow": True}],
)
def test_every_layout_is_the_same_model(tmp_path: Path, heard: Heard, layout: dict[str, Any]) -> None:
    assert hear(write_folder(tmp_path, **layout)) == heard


def test_a_head_of_its_own_is_read(tmp_path: Path, folder: Path, heard: Heard) -> None:
    untied = CONFIG | {"tie_word_embeddings": False}
    tensors = weights()
    same = tensors | {"lm_head.weight": tensors["model.language_model.embed_tokens.weight"]}
    assert hear(write_folder(tmp_path, untied, same)) == heard
    other = tensors | {"lm_head.weight": weights(seed=2)["model.language_model.embed_tokens.weight"]}
    assert hear(write_folder(tmp_path, untied, other)) != heard


def test_an_answer_does_not_depend_on_its_batch(folder: Path, heard: Heard) -> None:
    model = load_qwen(folder)
    for sound, together in zip(SOUNDS, heard, strict=True):
        alone = read_utterances(model, [sound], BEAM, [SINGLE])[0]
        assert [(each.tokens, each.score) for each in alone.hypotheses] == together


def test_a_hypothesis_scores_what_forcing_it_gives(folder: Path, heard: Heard) -> None:
    model = load_qwen(folder)
    encoded, prepared = model.encode(SOUNDS), [model.prepare(SINGLE)] * len(SOUNDS)
    prompts = [question.prompts[0].tokens for question in model.ask(encoded, prepared, [None] * len(SOUNDS))]
    head = model.heads["attention"]
    scores = head.score(encoded, prompts, [[tokens for tokens, _ in own] for own in heard])
    for own, forced in zip(heard, scores, strict=True):
        # None of them ended: there is no end whose log-probability the search added.
        assert np.abs(forced - [score for _, score in own]).max() < 1e-4


def test_the_prompt_has_context_sound_and_language(folder: Path) -> None:
    model = load_qwen(folder)
    encoded = model.encode(SOUNDS[:1])

    def prompt(request: DecodeRequest) -> str:
        tokens = model.ask(encoded, [model.prepare(request)], [None])[0].prompts[0].tokens
        names = {number: name for name, number in ADDED.items()}
        return "".join(names[each] if each in names else model.tokenizer.spell([each]) for each in tokens)

    sound = f"<|audio_start|>{'<|audio_pad|>' * 7}<|audio_end|>"
    turns = f"<|im_end|>\n<|im_start|>user\n{sound}<|im_end|>\n<|im_start|>assistant\n"
    assert prompt(DecodeRequest()) == f"<|im_start|>system\n{turns}"
    asked = DecodeRequest(prompt="lamp, stones", hotwords="mill", language="de")
    assert prompt(asked) == f"<|im_start|>system\nlamp, stones\nmill{turns}language German<asr_text>"
    # What spells an order is text.
    order = model.tokenizer.system("<|im_end|>")
    assert ADDED["<|im_end|>"] not in order
    assert model.tokenizer.spell(order) == "system\n<|im_end|>"


def test_an_answers_language_and_text(folder: Path) -> None:
    model = load_qwen(folder)
    tokenizer = model.tokenizer
    marker = ADDED["<asr_text>"]
    said = [*tokenizer.encode("language German"), marker, *tokenizer.encode(" the lamp ")]
    assert model.opening(said).length == len(tokenizer.encode("language German")) + 1
    assert model.opening(said).language == "de"
    assert model.opening([*tokenizer.encode("language Nglish"), marker]).language is None
    assert model.opening(tokenizer.encode("the lamp")).length == 0
    assert tokenizer.decode(said) == "the lamp"
    words = tokenizer.words(tokenizer.encode("a lamp,今天 x"))
    assert [word.text for word in words] == ["a", " lamp", ",", "今", "天", " x"]
    assert words[-1].last == len(tokenizer.encode("a lamp,今天 x"))


def test_nothing_is_heard_in_silence_and_in_a_hum(folder: Path) -> None:
    model = load_qwen(folder)
    hum = np.sin(np.arange(16_000 * 6) * 0.05).astype(np.float32) * 0.1
    for answer in read_utterances(model, [np.zeros(80_000, np.float32), hum], GREEDY, [DecodeRequest()] * 2):
        assert answer.hypotheses[0].tokens == ()
        assert not answer.spoken


def test_what_the_model_cannot_do_is_refused(folder: Path) -> None:
    model = load_qwen(folder)
    with pytest.raises(InvalidRequest, match=r"language: .* does not know 'xx'; it knows: ar, cs"):
        model.prepare(DecodeRequest(language="xx"))
    with pytest.raises(InvalidRequest, match="task: "):
        model.prepare(DecodeRequest(task="translate"))
    with pytest.raises(InvalidRequest, match=r"prompt: it has 3007 tokens; .* takes at most 1024"):
        model.prepare(DecodeRequest(prompt="x" * 3000))


def change(config: dict[str, Any], **sections: dict[str, Any]) -> dict[str, Any]:
    return config | {f"{name}_config": config[f"{name}_config"] | own for name, own in sections.items()}


@pytest.mark.parametrize(
    ("config", "said"),
    [
        (
            change(CONFIG, audio={"n_window": 25}),
            "config.json: audio_config.n_window is 25; this engine computes",
        ),
        (change(CONFIG, audio={"n_window_infer": 250}), "n_window_infer is 250, no multiple of 100"),
        (change(CONFIG, audio={"output_dim": 24}), "output_dim is 24, text_config.hidden_size 20"),
        (change(CONFIG, text={"num_key_value_heads": 3}), "num_attention_heads is 4, no multiple of 3"),
        (change(CONFIG, text={"hidden_act": "gelu"}), "text_config.hidden_act is 'gelu'"),
        (change(CONFIG, text={"head_dim": "10"}), "text_config.head_dim is '10', not a size"),
        (change(CONFIG, text={"rms_norm_eps": None}), "rms_norm_eps is None, not a number"),
        (change(CONFIG, text={"rope_parameters": "x"}), "rope_parameters is 'x', not a section"),
        (CONFIG | {"audio_config": 3}, "audio_config is 3, not a section"),
        (
            CONFIG | {"audio_token_id": 3},
            r"tokenizer.json: a tokenizer of another vocabulary: <\|audio_pad\|> is 264",
        ),
        (change(CONFIG, text={"vocab_size": 266}), "it has token 266, the model has 266 tokens"),
        (
            change(CONFIG, text={"num_hidden_layers": 3}),
            r"model.safetensors: the weights do not fit .*; missing: model.language_model.layers.2",
        ),
        (
            change(CONFIG, text={"head_dim": 12}),
            r"of another shape: model.language_model.layers.0.self_attn.q_proj.weight: expected \[48, 20\]",
        ),
    ],
)
def test_a_configuration_that_does_not_fit_is_named(
    tmp_path: Path, config: dict[str, Any], said: str
) -> None:
    write_folder(tmp_path, config, weights())
    with pytest.raises(ModelError, match=said):
        load_model(tmp_path)


def test_broken_folders_are_named(tmp_path: Path) -> None:
    write_folder(tmp_path, shards=2)
    (tmp_path / "model-00002-of-00002.safetensors").unlink()
    with pytest.raises(SpoolError, match=r"model-00002-of-00002.safetensors: the weights are missing"):
        load_model(tmp_path)
    tensors = weights()
    name = "model.language_model.layers.1.mlp.up_proj.weight"
    write_folder(tmp_path, tensors=tensors | {name: mx.full(tensors[name].shape, mx.nan)})
    (tmp_path / "model.safetensors.index.json").unlink()
    with pytest.raises(
        ModelError, match=rf"model.safetensors: {name} \[28, 20\] holds 560 numbers that are NaN"
    ):
        load_model(tmp_path)
    (tmp_path / "tokenizer.json").unlink()
    with pytest.raises(ModelError, match=r"tokenizer\.json: the tokenizer is missing"):
        load_model(tmp_path)
    write(tmp_path / "vocab.json", {"a": 0})
    (tmp_path / "merges.txt").write_text("a b c\n")
    with pytest.raises(ModelError, match=r"vocab\.json: not a vocabulary with its merges\.txt"):
        load_model(tmp_path)


def test_files_of_another_family_are_named(tmp_path: Path) -> None:
    write_folder(tmp_path, CONFIG | {"architectures": 7})
    load_model(tmp_path)
    write(tmp_path / "generation_config.json", {"eos_token_id": 3})
    with pytest.raises(
        ModelError, match="answers end with token 3 by eos_token_id, which is no special token"
    ):
        load_model(tmp_path)
    write(tmp_path / "preprocessor_config.json", {"processor_class": "ParakeetProcessor"})
    with pytest.raises(
        ModelError, match=r"preprocessor_config.json: processor_class is ParakeetProcessor, but"
    ):
        load_model(tmp_path)


def test_a_tokenizer_of_another_model_is_named(tmp_path: Path) -> None:
    write_folder(tmp_path)
    tokenizer = json.loads((tmp_path / "tokenizer.json").read_text())
    tokenizer["added_tokens"] = [
        each for each in tokenizer["added_tokens"] if each["content"] != "<asr_text>"
    ]
    write(tmp_path / "tokenizer.json", tokenizer)
    with pytest.raises(ModelError, match="a tokenizer of another vocabulary: it has no <asr_text>"):
        load_model(tmp_path)


def test_a_model_is_not_in_memory_twice_while_it_is_loaded(tmp_path: Path) -> None:
    text = CONFIG["text_config"] | {"hidden_size": 128, "intermediate_size": 256, "num_hidden_layers": 12}
    config = CONFIG | {"audio_config": CONFIG["audio_config"] | {"output_dim": 128}, "text_config": text}
    folder = write_folder(tmp_path / "model", config)
    gc.collect()
    before = mx.get_active_memory()
    mx.reset_peak_memory()
    size = load_qwen(folder).size
    assert size > 5_000_000
    assert mx.get_peak_memory() - before < 1.3 * size
