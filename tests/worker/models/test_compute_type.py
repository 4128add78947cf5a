"""Encoders in 8-bit integers: which models have them, and that they answer as in float32."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import mlx.core as mx
import numpy as np
import pytest
from numpy.typing import NDArray

from kernels.nn.int8_products import can_run
from kernels.runtime import compiler
from spool.domain import Quality
from spool.settings import Settings
from tests.worker.models.qwen3_asr.tiny import write_folder
from tests.worker.models.whisper.tiny import make_dims, make_tensors, tone, write_mlx
from worker.decode import read_utterances
from worker.models import DecodeRequest, QwenModel, SearchOptions, load_model, write_quality
from worker.models.quality import int8_is_chosen

needs_integers = pytest.mark.skipif(
    compiler() is None or not can_run(), reason="needs a C++ compiler and an x86-64 CPU with VNNI"
)
MEASURED = Quality(21, 21, 0.05, 0.05, 20.0, "int8", "Device(cpu, 0)", "2026-11-26T19:00:00+00:00")
DEMO = Path(__file__).parents[3] / "models" / "demo"


def test_integers_are_chosen_where_they_were_measured(make_settings: Callable[..., Settings]) -> None:
    settings = make_settings(models={"a": "/models/a", "b": "/models/b", "c": "/models/c"})
    write_quality(settings.home, "a", MEASURED)
    write_quality(settings.home, "b", replace(MEASURED, no_worse=20))
    write_quality(settings.home, "c", replace(MEASURED, dtype="float32"))
    chosen = [name for name in "abc" if int8_is_chosen(settings, f"/models/{name}")]
    assert chosen == ["a"]
    always, never = (settings.model_copy(update={"compute_type": each}) for each in ("int8", "float32"))
    assert int8_is_chosen(always, "/models/b")
    assert not int8_is_chosen(never, "/models/a")


@needs_integers
def test_whisper_in_integers_is_near_float32_and_another_maker(tmp_path: Path) -> None:
    dims = make_dims()
    folder = write_mlx(tmp_path, dims, make_tensors(dims))
    plain, integers = load_model(folder, int8=False), load_model(folder, int8=True)
    assert (plain.info.dtype, integers.info.dtype) == ("float32", "int8")
    assert plain.info.digest != integers.info.digest
    expected, got = (np.array(model.encode([tone(3, 4)])[0].batch.frames) for model in (plain, integers))
    assert not np.array_equal(expected, got)
    assert np.sqrt(np.mean((expected - got) ** 2) / np.mean(expected**2)) < 0.05
    # And each window by itself
    together = integers.encode([tone(3, 4), tone(2, 1)])
    alone = integers.encode([tone(2, 1)])[0]
    np.testing.assert_array_equal(np.array(alone.frames), np.array(together[1].frames))


@needs_integers
def test_a_conformer_in_integers_is_near_float32_and_gives_the_bits_of_an_utterance_alone() -> None:
    plain, integers = load_model(DEMO, int8=False), load_model(DEMO, int8=True)
    assert (plain.info.dtype, integers.info.dtype) == ("float32", "int8")
    samples = [np.random.default_rng(3).standard_normal(n).astype(np.float32) * 0.1 for n in (16_000, 12_000)]
    expected, got = plain.encode(samples), integers.encode(samples)
    (alone,) = np.array(integers.encode(samples[1:]).frames)
    np.testing.assert_array_equal(np.array(got.frames)[1, : len(alone)], alone)
    frames = np.array(expected.frames)
    assert np.sqrt(np.mean((frames - np.array(got.frames)) ** 2) / np.mean(frames**2)) < 0.05


@needs_integers
def test_a_conformer_in_integers_holds_no_second_copy_of_its_weights() -> None:
    samples = np.random.default_rng(3).standard_normal(16_000).astype(np.float32) * 0.1
    held = {}
    for int8 in (False, True):
        before = mx.get_active_memory()
        model = load_model(DEMO, int8=int8)
        mx.eval(model.encode([samples]).frames)
        held[int8] = mx.get_active_memory() - before
        del model
    assert held[True] < 0.6 * held[False]


@needs_integers
def test_qwen_in_integers_is_near_float32_and_answers_by_utterance(tmp_path: Path) -> None:
    folder = write_folder(tmp_path)
    plain, integers = load_model(folder, int8=False), load_model(folder, int8=True)
    assert isinstance(plain, QwenModel)
    assert isinstance(integers, QwenModel)
    assert (plain.info.dtype, integers.info.dtype) == ("float32", "int8")
    sounds = [np.random.default_rng(5).normal(0, 0.1, size).astype(np.float32) for size in (30_000, 52_000)]
    options, request = SearchOptions(decoder="beam", beam=3, nbest=3), DecodeRequest(single=True)

    def hear(*heard: NDArray[np.float32]) -> list[list[tuple[tuple[int, ...], float]]]:
        answers = read_utterances(integers, heard, options, [request] * len(heard))
        return [[(each.tokens, each.score) for each in answer.hypotheses] for answer in answers]

    assert hear(*sounds) == hear(sounds[0]) + hear(sounds[1])
    rows, scores, said = [], [], [list(range(20, 40)), [5, 6, 7]]
    for model in (plain, integers):
        encoded = model.encode(sounds[1:])
        rows.append(np.array(encoded[0]))
        prompt = model.ask(encoded, [model.prepare(request)], [None])[0].prompts[0].tokens
        scores.append(model.heads["attention"].score(encoded, [prompt], [said])[0])
    assert not np.array_equal(rows[0], rows[1])
    assert np.sqrt(np.mean((rows[0] - rows[1]) ** 2) / np.mean(rows[0] ** 2)) < 0.05
    assert not np.array_equal(scores[0], scores[1])
    np.testing.assert_allclose(scores[1], scores[0], rtol=0.01)


def test_a_named_dtype_is_exact(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SPOOL_COMPUTE_TYPE", "int8")
    dims = make_dims()
    folder = write_mlx(tmp_path, dims, make_tensors(dims))
    assert load_model(folder, mx.float32).info.dtype == "float32"
