"""The operations of a batch, against the published table and against the count of the benches."""

import json
from dataclasses import replace
from pathlib import Path

import pytest

from ops.bench.engine.flops import needed
from spool.errors import InvalidRequest
from spool.planning import (
    CHIPS,
    Batch,
    BlockShape,
    DecoderShape,
    ModelShape,
    cap,
    chip_named,
    cost_of,
    cost_of_reading,
    count_dense_operations,
    count_frames,
    parse_fleet,
    read_shape,
)
from worker.models import read_config

LARGE, SMALL = read_shape("0.6b"), read_shape("110m")


@pytest.mark.parametrize(
    ("shape", "gigaflops"),
    [
        (LARGE, {15: 15.5, 30: 15.9, 120: 18.7, 1440: 59, 3600: 126}),
        (SMALL, {15: 2.9, 30: 3.1, 120: 4.1, 1440: 18, 3600: 42}),
    ],
)
def test_operations_are_those_of_the_table(shape: ModelShape, gigaflops: dict[int, float]) -> None:
    for seconds, expected in gigaflops.items():
        found = cost_of(shape, Batch(seconds, 8)).operations / (8 * seconds) / 1e9
        assert found == pytest.approx(expected, rel=0.02, abs=0.5 if seconds >= 1440 else 0), seconds


def test_the_search_is_that_of_the_table_at_its_steps() -> None:
    for batch, expected in ((Batch(30, 8, steps_per_second=8), 0.14), (Batch(30, 8, "beam", 5, 8), 0.63)):
        found = cost_of(LARGE, batch).search / batch.audio_seconds / 1e9
        assert found == pytest.approx(expected, rel=0.02)


@pytest.mark.parametrize("folder", ["models/demo", "tests/golden/hybrid"])
@pytest.mark.parametrize("seconds", [0.5, 7.3, 30.0])
def test_operations_are_those_that_the_benches_count(folder: str, seconds: float) -> None:
    encoder = read_config(Path(folder) / "config.json").encoder
    shape = read_shape(folder)
    assert isinstance(shape, ModelShape)
    counted = needed(encoder, int(seconds * 100))
    work = cost_of(shape, Batch(seconds, 1))
    assert count_dense_operations(shape, seconds) == counted.total - counted.attention
    # The product of queries with 2T - 1 relative positions is a third more than what a result takes.
    assert work.attention * 3 / 4 == pytest.approx(counted.attention)


def test_sizes_are_those_that_the_engine_reads() -> None:
    config, shape = read_config(Path("models/demo/config.json")), read_shape("models/demo")
    assert isinstance(shape, ModelShape)
    assert config.prediction is not None
    assert config.joint is not None
    assert (shape.mels, shape.layers, shape.width) == (
        config.encoder.feat_in,
        config.encoder.n_layers,
        config.encoder.d_model,
    )
    assert (
        (shape.hidden, shape.lstm_layers)
        == (160, 1)
        == (
            config.prediction.pred_hidden,
            config.prediction.pred_rnn_layers,
        )
    )
    assert shape.durations == len(config.joint.durations)
    assert shape.head == "tdt"


def test_a_model_nobody_knows_is_refused_by_name(tmp_path: object) -> None:
    with pytest.raises(InvalidRequest, match="'whisper'"):
        read_shape("whisper")
    with pytest.raises(InvalidRequest, match=r"config\.json cannot be read"):
        read_shape(str(tmp_path))


def test_the_caps_of_the_table() -> None:
    """The table divides peak rates by operations alone, so it stands a little above."""
    for name, large, small in (
        ("M1", 163, 841),
        ("M4", 288, 1488),
        ("M4 Max", 1154, 5951),
        ("M3 Ultra", 1336, 6889),
    ):
        chip = chip_named(name)
        assert chip is not None
        assert 0.94 * large < cap(LARGE, chip, Batch(30, 32)) <= large * 1.02
        assert 0.88 * small < cap(SMALL, chip, Batch(30, 32)) <= small * 1.02


def test_a_search_alone_in_its_batch_is_bound_by_bandwidth() -> None:
    chip = chip_named("M4")
    assert chip is not None
    alone, together = cost_of(LARGE, Batch(30, 1)), cost_of(LARGE, Batch(30, 16))
    assert alone.search_bytes == together.search_bytes
    assert alone.search_bytes / (chip.gigabytes * 1e9) > alone.search / (chip.teraflops * 1e12)


def test_local_attention_grows_with_the_audio() -> None:
    local = ModelShape("local", 80, 4, 64, window=257)
    one, ten = (cost_of(local, Batch(seconds, 1)).attention for seconds in (60, 600))
    assert ten == pytest.approx(10 * one, rel=0.01)


def test_chips_are_found_as_machines_name_them() -> None:
    chip = chip_named("Apple M4 Pro", gpu_cores=20)
    assert chip is not None
    assert chip.teraflops == pytest.approx(7.4 * 20 / 16)
    assert chip.notes
    assert chip_named("Intel Xeon") is None
    assert len({one.name for one in CHIPS}) == len(CHIPS)


def test_a_fleet_is_read_as_people_write_it() -> None:
    assert parse_fleet("4\u00d7M4, 1x m3 ultra,M1") == ((4, "M4"), (1, "M3 Ultra"), (1, "M1"))
    assert parse_fleet("2\u00d7this machine") == ((2, "this machine"),)
    for bad, said in (("3\u00d7M9", "'M9'"), ("0\u00d7M4", "0"), (" , ", "such as")):
        with pytest.raises(InvalidRequest, match=said):
            parse_fleet(bad)


def test_an_attention_decoders_operations_are_counted() -> None:
    flash, encoder = read_shape("canary-1b-flash"), read_shape("0.6b")
    assert isinstance(flash, ModelShape)
    assert flash.head == "attention"
    older, newer = read_shape("nvidia/canary-1b"), read_shape("canary-1b-v2")
    assert isinstance(older, ModelShape)
    assert isinstance(newer, ModelShape)
    assert older.decoder != newer.decoder
    # 4 layers and the vocabulary: what a step reads (67 million with cross keys and values).
    assert flash.step_weights == 4 * 14 * 1024**2 + 5248 * 1024
    greedy, beam = cost_of(flash, Batch(30, 8)), cost_of(flash, Batch(30, 8, "beam", 5))
    tokens, frames = 1 + 8.75 * 30, 375
    memory = 8 * frames * 2 * 1024**2 * 2 * 4
    own = 8 * (tokens + 8) * (2 * flash.step_weights + 4 * (frames + 9 + tokens / 2) * 1024 * 4)
    assert greedy.search == pytest.approx(memory + own)
    assert beam.search - memory > 4.5 * own
    assert greedy.steps == beam.steps
    assert greedy.search_bytes > 2 * tokens * flash.step_weights
    assert cost_of(encoder, Batch(30, 8)).search < greedy.search < greedy.dense
    narrow = cost_of(read_shape("canary-180m-flash"), Batch(30, 8))
    assert narrow.search == pytest.approx(greedy.search + 8 * frames * 2 * 512 * 1024)


def test_a_canarys_folder_tells_its_shape(tmp_path: Path) -> None:
    tree = {
        "prompt_format": "canary2",
        "tokenizer": {"type": "agg"},
        "encoder": {"feat_in": 128, "n_layers": 17, "d_model": 512, "n_heads": 8, "subsampling_factor": 8}
        | {"conv_kernel_size": 9, "subsampling_conv_channels": 256},
        "transf_decoder": {"config_dict": {"num_layers": 4, "hidden_size": 1024}},
        "head": {"num_classes": 5248},
    }
    (tmp_path / "config.json").write_text(json.dumps(tree))
    known, found = read_shape("canary-180m-flash"), read_shape(str(tmp_path))
    assert isinstance(found, ModelShape)
    assert replace(found, name=known.name, hidden=640, lstm_layers=1, joint=640, durations=5) == known


def test_a_wenet_folder_tells_its_shape_and_a_beam_counts_its_decoders(tmp_path: Path) -> None:
    conf = {"output_size": 256, "num_blocks": 12, "linear_units": 2048, "cnn_module_kernel": 8}
    tree = {
        "encoder_conf": conf | {"input_layer": "conv2d6"},
        "decoder_conf": {"num_blocks": 3, "r_num_blocks": 3},
        "output_dim": 4233,
    }
    (tmp_path / "train.yaml").write_text(json.dumps(tree))  # JSON is YAML
    shape = read_shape(str(tmp_path))
    assert isinstance(shape, ModelShape)
    assert shape.head == "ctc"
    assert shape.readers is not None
    seconds = 10.0
    frames = ((1000 - 1) // 2 - 2) // 3
    assert count_frames(shape, seconds) == frames
    greedy = cost_of(shape, Batch(seconds, 1, "greedy", 10, reads="both"))
    beam = cost_of(shape, Batch(seconds, 1, "beam", 10, reads="both"))
    tokens, square = 1 + 37.5, 256**2
    assert greedy.search == frames * 2 * 256 * 4233
    reading = 2 * (6 * 14 * square + 4232 * 256) + 4 * (frames + tokens / 2) * 256 * 6
    assert beam.search - greedy.search == pytest.approx(frames * 4 * square * 6 + 10 * tokens * reading)
    # Multiply-adds: two convolutions, the projection behind them and twelve layers.
    convolutions = 499 * 39 * 9 * 256 + frames * 12 * 25 * square + frames * 256 * 12 * 256
    layers = 12 * frames * ((4 * 8 + 4 + 3) * square + 8 * 256)
    assert greedy.dense == 2 * (convolutions + layers)
    alone, left, right = (
        cost_of(shape, Batch(seconds, 1, "beam", 10, reads=which)).search
        for which in ("none", "left", "right")
    )
    assert alone == greedy.search, "a beam whose hypotheses nobody reads"
    head = 10 * tokens * 2 * 4232 * 256  # of each direction
    assert left == right == pytest.approx((beam.search + alone + head) / 2)
    (tmp_path / "train.yaml").write_text("encoder_conf: {}")
    with pytest.raises(InvalidRequest, match="does not give the model's sizes"):
        read_shape(str(tmp_path))


def test_a_language_model_is_not_planned_for(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text(json.dumps({"model_type": "lstm_language_model", "hidden": 8}))
    with pytest.raises(InvalidRequest, match="is a language model, which takes almost no time"):
        read_shape(str(tmp_path))


def test_a_second_model_reads_every_hypothesis_in_one_pass() -> None:
    batch, flash = Batch(30, 8, "beam", 5), read_shape("canary-1b-flash")
    assert isinstance(flash, ModelShape)
    read, alone = cost_of_reading(flash, batch), cost_of(flash, Batch(30, 8))
    assert (read.dense, read.attention) == (alone.dense + alone.positions, alone.attention)
    tokens, frames = 9 + 3.75 * 30, 375
    each = 2 * flash.step_weights + 4 * (frames + tokens / 2) * 1024 * 4
    assert read.search == pytest.approx(8 * frames * 4 * 1024**2 * 4 + 8 * 5 * tokens * each)
    assert read.search_bytes == 2 * flash.step_weights, "read once, not at every step"
    tiny = cost_of_reading(read_shape("whisper-tiny"), batch)
    twice = cost_of_reading(read_shape("whisper-tiny"), replace(batch, beam=10))
    assert twice.search == 2 * tiny.search
    assert twice.dense == tiny.dense
    wenet = ModelShape("u2", 80, 12, 256, readers=DecoderShape(6, 256, prompt=1, backwards=3))
    half = replace(wenet, readers=DecoderShape(3, 256, prompt=1))
    assert cost_of_reading(wenet, batch) == cost_of_reading(half, batch), (
        "the decoder from the right reads no other's"
    )
    with pytest.raises(InvalidRequest, match="has no attention decoder"):
        cost_of_reading(read_shape("0.6b"), batch)


def test_folders_in_transformers_layout_have_the_sizes_of_their_configuration(tmp_path: Path) -> None:
    encoder = {"hidden_size": 64, "intermediate_size": 256, "num_hidden_layers": 3, "num_mel_bins": 80}
    tree = {
        "model_type": "parakeet_tdt",
        "vocab_size": 129,
        "decoder_hidden_size": 40,
        "encoder_config": encoder,
    }
    (tmp_path / "config.json").write_text(json.dumps(tree))
    shape = read_shape(str(tmp_path))
    assert isinstance(shape, ModelShape)
    assert (shape.layers, shape.width, shape.labels, shape.lstm_layers, shape.durations) == (3, 64, 128, 2, 5)
    assert (shape.expansion, shape.head) == (4, "tdt")
    # What is missing has the published sizes.
    (tmp_path / "config.json").write_text(json.dumps({"model_type": "cohere_asr"}))
    folder, known = read_shape(str(tmp_path)), read_shape("cohere-transcribe-03-2026")
    assert isinstance(known, ModelShape)
    assert isinstance(folder, ModelShape)
    assert folder.encoder_weights == known.encoder_weights
    assert (folder.decoder, folder.labels, folder.head) == (known.decoder, known.labels, "attention")


def test_a_granites_name_and_folder_tell_its_shape(tmp_path: Path) -> None:
    known = read_shape("ibm-granite/granite-speech-5.0-470m-turboctc")
    assert isinstance(known, BlockShape)
    assert known.encoder_weights == pytest.approx(470e6, rel=0.002)
    (tmp_path / "config.json").write_text(json.dumps({"model_type": "granite_speech5_ctc"}))
    assert read_shape(str(tmp_path)) == replace(known, name=tmp_path.name)
    encoder = {"num_hidden_layers": 4, "hidden_size": 64, "num_attention_heads": 4, "subsample_layers": [1]}
    tree = {"model_type": "granite_speech5_ctc", "encoder_config": encoder, "vocab_size": 300}
    (tmp_path / "config.json").write_text(json.dumps(tree))
    small = read_shape(str(tmp_path))
    assert isinstance(small, BlockShape)
    assert (small.layers, small.width, small.head_width, small.pooled, small.labels) == (4, 64, 16, (1,), 300)
    assert small.count_frames(1.01) == (51, 51, 25, 25, 25)
    encoder["hidden_size"] = 0
    (tmp_path / "config.json").write_text(json.dumps(tree))
    with pytest.raises(InvalidRequest, match="does not give the model's sizes"):
        read_shape(str(tmp_path))


def test_a_granites_operations_are_counted_at_each_layers_rate() -> None:
    # One layer of 8 values, one head of 4, blocks of 3, feed-forwards of 10, a convolution of 16, 5 labels.
    shape = BlockShape("toy", 2, 2, 8, 10, 1, 4, 3, 7, 2, (0,), 5)
    cost = cost_of(shape, Batch(0.2, 3))
    layers = [(10, 5), (5, 5)]
    dense = sum(t * (2 * 8 * 10 + 4 * 8 * 4 + 8 * 32) + u * (16 * 8 + 7 * 16 + 2 * 8 * 10) for t, u in layers)
    dense += 10 * 8 * 8 + 5 * 2 * 8 * 5
    assert cost.dense == 3 * 2 * dense
    assert cost.attention == 3 * 8 * 15 * 3 * 4
    assert cost.search == 3 * 5 * 2 * 8 * 5
    assert cost.steps == 1
    assert cost_of(shape, Batch(0.2, 3, "beam")).steps == 5
    # Time grows with the length, and no faster.
    large = BlockShape("granite")
    hour, minute = (cost_of(large, Batch(seconds, 1)).operations for seconds in (3600.0, 60.0))
    assert hour == pytest.approx(60 * minute, rel=0.01)
    with pytest.raises(InvalidRequest, match="no attention decoder"):
        cost_of_reading(large, Batch(30, 1, "beam"))


@pytest.mark.parametrize(
    "name",
    [
        "whisper-large-v3-turbo",
        "parakeet-tdt-0.6b-v2",
        "canary-1b",
        "qwen3-asr-0.6b",
        "granite-speech-5.0-470m-turboctc",
    ],
)
def test_quantised_weights_take_fewer_bytes_and_the_same_operations(name: str) -> None:
    whole, eight, four = (read_shape(f"{name}{end}") for end in ("", "-8bit", "-4bit"))
    batch = Batch(30, 1, "beam")
    costs = [cost_of(shape, batch) for shape in (whole, eight, four)]
    assert len({cost.operations for cost in costs}) == 1
    assert costs[0].encoder_bytes > costs[1].encoder_bytes > costs[2].encoder_bytes
    # 8.5 and 4.5 bits instead of 16, where everything is quantised
    saved = [costs[0].encoder_bytes - cost.encoder_bytes for cost in costs[1:]]
    assert saved[1] / saved[0] == pytest.approx((16 - 4.5) / (16 - 8.5))
    assert (costs[0].search_bytes > costs[1].search_bytes) == name.startswith(("whisper", "canary", "qwen"))


def test_the_bits_of_a_folder_are_those_of_its_configuration(tmp_path: Path) -> None:
    tree = {
        "model_type": "granite_speech5_ctc",
        "encoder_config": {},
        "quantization": {"group_size": 64, "bits": 4},
    }
    (tmp_path / "config.json").write_text(json.dumps(tree))
    assert read_shape(str(tmp_path)).bits == 4
