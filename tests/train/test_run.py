"""A run on a tiny cache: its batches, taking it up again, its export."""

import json
import math
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import sentencepiece
import torch
from safetensors.torch import load_file

from ops.train.data import cache
from ops.train.data.batches import BatchOptions, batches, collated, encoder_frames, one_round
from ops.train.data.features import MELS
from ops.train.data.mixture import OPEN, Mixture
from ops.train.data.prepare import check_speakers
from ops.train.model.export import export
from ops.train.model.network import Network, Shape
from ops.train.run.phases import PHASES
from ops.train.run.train import Run, TrainOptions, losses, optimisers

TOKENIZER = Path(__file__).parents[2] / "models" / "demo" / "tokenizer.model"
Encode = Callable[[str], list[int]]
SHAPE = Shape(width=16, layers=1, heads=2, channels=4, prediction=8, joint=8)
TEXTS = {
    "so762": ["one two three", "he was here"],
    "libri": ["the old man and the sea"],
    "words": ["bed", "cat"],
    "digits": ["one", "two", "nine"],
    "synth": ["a synthetic line", "nine"],
    "noise": ["", ""],
}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    rng, made = np.random.default_rng(0), tmp_path_factory.mktemp("cache")

    def items(domains: list[str]) -> list[cache.Named]:
        return [
            cache.Named(
                f"{d}-{n}",
                text,
                d,
                "train",
                f"speaker {n % 2}",
                rng.normal(-8, 2, (130 + 9 * n, MELS)).astype(np.float32),
            )
            for d in domains
            for n, text in enumerate(TEXTS[d])
        ]

    cache.write(made, "train", items(["so762", "libri", "words", "digits"]))
    cache.write(made, "synth", items(["synth"]))
    cache.write(made, "wordless", items(["noise"]))
    return made


@pytest.fixture(scope="module")
def encode() -> Encode:
    return sentencepiece.SentencePieceProcessor(model_file=str(TOKENIZER)).encode


def test_the_cache_gives_back_what_was_written(folder: Path) -> None:
    features = cache.FeatureSet(folder, "train")
    assert [c.text for c in features if c.domain == "digits"] == TEXTS["digits"]
    assert [features.mels(c).shape for c in features if c.domain == "digits"] == [
        (130, 80),
        (139, 80),
        (148, 80),
    ]


@pytest.mark.parametrize("kind", sorted(OPEN))
def test_every_kind_of_utterance_has_its_words(folder: Path, kind: str) -> None:
    mixture = Mixture(folder)
    known = {word for texts in TEXTS.values() for text in texts for word in text.split()}
    for seed in range(8):
        mels, text = mixture.draw(kind, np.random.default_rng(seed))
        assert mels.shape[1] == MELS
        assert np.isfinite(mels).all()
        assert set(text.split()) <= known
        assert (text == "") == (kind == "wordless") or kind == "medley"


def test_a_sentence_is_cut_at_its_pauses_at_times(folder: Path) -> None:
    mixture = Mixture(folder)
    clip = next(c for c in mixture.train if len(c.text.split()) == 3)
    first, *rest = clip.text.split()
    mixture.pauses = {clip.id: [(1, 60)]}
    heard = {
        (text, len(mels))
        for mels, text in (mixture.sentence(clip, np.random.default_rng(n)) for n in range(40))
    }
    parts = {(first, 60), (" ".join(rest), clip.frames - 60)}
    assert heard == {(clip.text, clip.frames), *parts}


def test_a_round_is_the_same_each_time_and_fits_its_limits(folder: Path, encode: Encode) -> None:
    options = BatchOptions(seed=3, seconds=20.0, round=24, longest=900, lattice=4_000)
    first, second = (one_round(Mixture(folder), encode, options, 5) for _ in range(2))
    other = one_round(Mixture(folder), encode, options, 6)
    assert sum(len(b.frames) for b in first) == options.round
    for a, b in zip(first, second, strict=True):
        assert torch.equal(a.features, b.features)
        assert torch.equal(a.targets, b.targets)
    assert any(not torch.equal(a.frames, b.frames) for a, b in zip(first, other, strict=False))
    for batch in first:
        assert len(batch.frames) == 1 or len(batch.frames) * int(batch.frames.max()) <= 2_000
        for row in range(len(batch.frames)):
            assert encoder_frames(int(batch.frames[row])) > int(batch.labels[row])


@pytest.mark.parametrize("share", [0.0, 1.0])
def test_a_share_of_the_utterances_is_masked(folder: Path, encode: Encode, share: float) -> None:
    options = BatchOptions(seed=3, seconds=20.0, round=24, longest=900, masked=share)
    round_batches = one_round(Mixture(folder), encode, options, 0)
    blank = [
        bool((row[:frames] == 0).all(1).any() or (row[:frames] == 0).all(0).any())
        for batch in round_batches
        for row, frames in zip(batch.features, batch.frames.tolist(), strict=True)
    ]
    assert sum(blank) == 0 if share == 0 else sum(blank) > 12


def test_batches_can_be_entered_in_the_middle(folder: Path, encode: Encode) -> None:
    options = BatchOptions(seed=3, seconds=20.0, round=12, longest=900)
    whole = batches(Mixture(folder), encode, options)
    seen = [next(whole) for _ in range(7)]
    round_, within, _ = seen[4]
    entered = batches(Mixture(folder), encode, options, round_, within)
    for expected in seen[4:]:
        batch = next(entered)
        assert batch[:2] == expected[:2]
        assert torch.equal(batch[2].features, expected[2].features)
    whole.close()
    entered.close()


def options_of(steps: int) -> TrainOptions:
    mix = BatchOptions(seed=1, seconds=12.0, round=8, longest=900)
    return TrainOptions(steps=steps, warmup=2, batches=mix)


def test_a_run_taken_up_again_ends_as_one_that_was_not_stopped(
    folder: Path, encode: Encode, tmp_path: Path
) -> None:
    whole = Run(tmp_path / "whole", SHAPE, options_of(6), None)
    whole.work(Mixture(folder), encode)
    stopped = Run(tmp_path / "parts", SHAPE, options_of(6), None)
    stopped.work(Mixture(folder), encode, until=lambda: stopped.step >= 3)
    assert stopped.step == 3
    resumed = Run(tmp_path / "parts", SHAPE, options_of(6), None)
    assert resumed.take_up()
    resumed.work(Mixture(folder), encode)
    assert resumed.step == whole.step == 6
    for name, value in whole.average.items():
        assert torch.equal(value, resumed.average[name]), name
    assert any(not torch.equal(value, stopped.average[name]) for name, value in whole.average.items())


def test_each_parameter_is_one_optimisers(tmp_path: Path) -> None:
    network = Network(SHAPE)
    names = {id(p): name for name, p in network.named_parameters()}
    adam, muon = (
        [names[id(p)] for g in o.param_groups for p in g["params"]] for o in optimisers(network, 1e-3)
    )
    assert sorted([*adam, *muon]) == sorted(names.values())
    assert "encoder.layers.0.feed_forward1.linear1.weight" in muon
    assert {"joint.out.weight", "prediction.embed.weight", "encoder.layers.0.self_attn.pos_bias_u"} <= set(
        adam
    )


def test_learning_lowers_the_losses_of_a_batch(folder: Path, encode: Encode, tmp_path: Path) -> None:
    rng = np.random.default_rng(2)
    pairs = [
        (rng.standard_normal((120, MELS)).astype(np.float32), encode(text)) for text in ("bed", "one two", "")
    ]
    batch = collated(pairs)
    run = Run(tmp_path, SHAPE, TrainOptions(steps=60, warmup=1, rate=5e-3), None)
    first = run.learn(batch)
    for _ in range(40):
        last = run.learn(batch)
    assert last[0] < 0.7 * first[0]
    assert last[1] < 0.7 * first[1]


def test_an_empty_answer_has_finite_losses(tmp_path: Path) -> None:
    run = Run(tmp_path, SHAPE, TrainOptions(), None)
    batch = collated([(np.zeros((200, MELS), np.float32), []), (np.zeros((90, MELS), np.float32), [])])
    assert all(torch.isfinite(loss) and loss > 0 for loss in losses(run.network, batch, 0.0))


def test_an_export_holds_the_named_tensors_and_a_configuration(tmp_path: Path) -> None:
    run = Run(tmp_path / "run", SHAPE, TrainOptions(), None)
    digest = export(run.average, SHAPE, TOKENIZER, tmp_path / "model")
    tensors = load_file(tmp_path / "model" / "model.safetensors")
    assert tensors["encoder.pre_encode.out.weight"].shape == (16, 40)
    assert tensors["encoder.layers.0.self_attn.pos_bias_u"].shape == (2, 8)
    assert tensors["decoder.prediction.embed.weight"].shape == (129, 8)
    assert tensors["decoder.prediction.dec_rnn.lstm.weight_ih_l0"].shape == (32, 8)
    assert tensors["joint.joint_net.2.weight"].shape == (128 + 1 + 5, 8)
    assert tensors["ctc_decoder.decoder_layers.0.weight"].shape == (129, 16, 1)
    assert {t.dtype for t in tensors.values()} == {torch.float16}
    config = json.loads((tmp_path / "model" / "config.json").read_text())
    assert config["encoder"]["d_model"] == 16
    assert len(config["joint"]["vocabulary"]) == config["joint"]["num_classes"] == 128
    assert (tmp_path / "model" / "tokenizer.model").read_bytes() == TOKENIZER.read_bytes()
    assert len(digest) == 64


def test_a_speaker_in_two_splits_is_refused() -> None:
    rows = [{"speaker": "a", "split": "train"}, {"speaker": "b", "split": "test"}]
    check_speakers(rows)
    with pytest.raises(ValueError, match="speaker a"):
        check_speakers([*rows, {"speaker": "a", "split": "test"}])


def test_batches_made_in_a_process_of_their_own_are_the_same(folder: Path, encode: Encode) -> None:
    options = BatchOptions(seed=3, seconds=20.0, round=12, longest=900)
    stream = batches(Mixture(folder), encode, options)
    there = batches(Mixture(folder), encode, replace(options, process=True))
    for _ in range(3):
        ours, theirs = next(stream), next(there)
        assert ours[:2] == theirs[:2]
        assert torch.equal(ours[2].features, theirs[2].features)
    stream.close()
    there.close()


def test_stored_statistics_stay_those_of_the_average(folder: Path, encode: Encode, tmp_path: Path) -> None:
    run = Run(tmp_path, SHAPE, replace(options_of(2), stored=True), None)
    name = "encoder.layers.0.conv.batch_norm.running_mean"
    run.average[name].fill_(0.25)
    run.work(Mixture(folder), encode)
    assert torch.equal(run.network.state_dict()[name], torch.full((16,), 0.25))


def test_the_losses_of_some_of_a_batch_are_those_of_these_alone(tmp_path: Path) -> None:
    run = Run(tmp_path, SHAPE, TrainOptions(), None)
    rng = np.random.default_rng(2)
    batch = collated(
        [(rng.standard_normal((n, MELS)).astype(np.float32), [1] * (n // 40)) for n in (90, 200)]
    )
    part = batch.rows(torch.tensor([0]))
    assert part.targets.shape == (1, 2)
    assert part.frames.tolist() == [90]
    torch.manual_seed(0)
    ctc, tdt = losses(run.network.eval(), batch, 0.0, 0.5)
    torch.manual_seed(0)
    chosen = int(torch.randperm(2)[0])
    assert ctc == losses(run.network, batch, 0.0)[0]
    alone = losses(run.network, batch.rows(torch.tensor([chosen])), 0.0)[1]
    assert torch.isclose(tdt, alone, rtol=0.02)  # padding rounds differently in bfloat16


def test_a_part_of_a_run_ends_where_it_is_told_to(folder: Path, encode: Encode, tmp_path: Path) -> None:
    whole = replace(options_of(10), rate=1e-2)
    first, last = (phase.options(whole) for phase in PHASES)
    assert (first.steps, last.steps, last.rate) == (8, 4, 3e-3)
    run = Run(tmp_path, SHAPE, replace(first, batches=whole.batches), None)
    run.work(Mixture(folder), encode)
    assert run.step == math.ceil(first.end * first.steps) == 6
