"""What a model takes whose language model reads embedded sound, by a published name or its folder."""

import json
from pathlib import Path

import pytest

from spool.planning import CHIPS, Batch, cap, cost_of, cost_of_reading, read_shape
from spool.planning.language_shape import LanguageShape


def test_the_published_sizes_are_theirs() -> None:
    small, large = read_shape("qwen3-asr-0.6b"), read_shape("Qwen/Qwen3-ASR-1.7B-hf")
    assert isinstance(small, LanguageShape)
    assert isinstance(large, LanguageShape)
    # Of 0.9 and 2 thousand million parameters on the hub.
    assert small.tower_weights + small.step_weights == pytest.approx(0.79e9, rel=0.05)
    assert large.tower_weights + large.step_weights == pytest.approx(2.04e9, rel=0.05)


def test_a_folder_says_its_sizes_in_both_layouts(tmp_path: Path) -> None:
    text = {"hidden_size": 64, "num_hidden_layers": 3, "num_attention_heads": 4, "num_key_value_heads": None}
    sections = {"audio_config": {"d_model": 48, "encoder_layers": 2}, "text_config": text}
    shapes = []
    for tree in (sections, {"thinker_config": sections}):
        (tmp_path / "config.json").write_text(json.dumps({"model_type": "qwen3_asr", **tree}))
        shapes.append(read_shape(str(tmp_path)))
    assert shapes[0] == shapes[1]
    assert isinstance(shapes[0], LanguageShape)
    assert (shapes[0].audio_width, shapes[0].layers, shapes[0].groups) == (48, 3, 4)


def test_a_beam_and_a_longer_recording_cost_more() -> None:
    shape, chip = read_shape("qwen3-asr-0.6b"), CHIPS[0]
    greedy, beam = cost_of(shape, Batch(30, 8)), cost_of(shape, Batch(30, 8, "beam", 4))
    assert beam.search == pytest.approx(4 * greedy.search)
    assert beam.encoder == greedy.encoder
    assert cost_of_reading(shape, Batch(30, 8, "beam", 4)).search > greedy.search
    assert cap(shape, chip, Batch(30, 8, "beam", 4)) < cap(shape, chip, Batch(30, 8))
