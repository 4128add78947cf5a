"""What a loaded model promises: odd input, heads, dtypes, one step of the transducer."""

import mlx.core as mx
import numpy as np
import pytest

from ops.testbed.nemo_model import load_nemo
from tests.worker.models.golden import FOLDER, model, numbers, speech
from worker.models import USUAL_FRAMES, length_bucket


def test_an_empty_utterance_leaves_the_batch_alone() -> None:
    # Given utterances of no sample, of less than a hop and of one feature frame among real ones
    short = [np.zeros(0, np.float32), np.ones(10, np.float32), np.full(160, 0.1, np.float32)]
    loaded = model("hybrid.nemo")
    # When they are encoded together
    encoded = loaded.encode([short[0], speech()[0], short[1], short[2]])
    alone = loaded.encode([speech()[0]])
    # Then the empty ones have no frame and everything is finite
    assert encoded.lengths.tolist() == [0, int(alone.lengths[0]), 0, 1]
    assert np.isfinite(np.array(encoded.frames)).all()
    length = int(alone.lengths[0])
    gap = np.abs(np.array(encoded.frames[1, :length] - alone.frames[0])).max()
    assert gap <= 3e-6 * np.abs(np.array(alone.frames)).max()


@pytest.mark.parametrize("path", ["hybrid.nemo", "causal.nemo"])
def test_batches_of_nothing(path: str) -> None:
    loaded = model(path)
    assert loaded.encode([]).frames.shape == (0, 0, 64)
    nothing = loaded.encode([np.zeros(0, np.float32), np.zeros(100, np.float32)])
    assert nothing.frames.shape == (2, 0, 64)
    assert nothing.lengths.tolist() == [0, 0]


def test_silence_gives_zeros_and_not_amplified_rounding() -> None:
    features, lengths = model("hybrid.nemo").features([np.zeros(48_000, np.float32)])
    assert lengths.tolist() == [300]
    assert not np.array(features).any()
    encoded = model("hybrid.nemo").encode([np.zeros(48_000, np.float32)])
    assert np.isfinite(np.array(encoded.frames)).all()


def test_a_constant_and_a_full_scale_signal_stay_finite() -> None:
    loud = np.where(np.arange(32_000) % 2, 1.0, -1.0).astype(np.float32)
    features, _ = model("hybrid.nemo").features([np.full(32_000, 0.5, np.float32), loud])
    assert np.isfinite(np.array(features)).all()


@pytest.mark.parametrize("samples", [0, 159, 160, 1279, 1280, 1281, 20_000])
@pytest.mark.parametrize("path", ["hybrid.nemo", "causal.nemo"])
def test_frames_are_counted_before_they_are_made(path: str, samples: int) -> None:
    loaded = model(path)
    encoded = loaded.encode([np.full(samples, 0.1, np.float32)])
    assert encoded.lengths.tolist() == [loaded.frames_of(samples)]
    assert encoded.frames.shape[1] == loaded.frames_of(samples)


def test_heads_and_sizes() -> None:
    assert set(model("tdt.nemo").heads) == {"tdt"}
    assert set(model("rnnt.nemo").heads) == {"rnnt"}
    assert set(model("ctc.nemo").heads) == {"ctc"}
    assert set(model("hybrid.nemo").heads) == {"tdt", "ctc"}
    assert model("ctc.nemo").transducer is None
    assert model("rnnt.nemo").ctc is None
    loaded = model("hybrid.nemo")
    assert loaded.frame_seconds == pytest.approx(0.08)
    assert loaded.name == "hybrid"
    assert len(loaded.info.sha256) == 64


def test_the_transducer_takes_a_step_as_nemo_does() -> None:
    # Given NeMo's greedy result for one utterance
    loaded, golden = model("tdt.nemo"), numbers("tdt")
    transducer = loaded.transducer
    assert transducer is not None
    assert transducer.durations == (0, 1, 2, 3, 4)
    assert transducer.blank == golden["blank"]
    frames = loaded.encode([speech()[1]]).frames
    projected = transducer.project_encoder(frames)
    predicted, state = transducer.start(1)
    # When its tokens are fed to the prediction network at its times
    for k in range(golden["greedy.len"][1, 0]):
        token, time = int(golden["greedy.tok"][1, 0, k]), int(golden["greedy.time"][1, 0, k])
        labels, durations = transducer.logits(projected[:, time], predicted)
        assert durations is not None
        # Then each is what the joint says there, with its duration
        assert int(labels.argmax()) == token
        assert transducer.durations[int(durations.argmax())] == golden["greedy.dur"][1, 0, k]
        predicted, state = transducer.step(mx.array([token]), state)


def test_rows_of_a_state_can_be_taken_and_masked() -> None:
    transducer = model("tdt.nemo").transducer
    assert transducer is not None
    first, start = transducer.start(3)
    assert start.hidden.shape == (3, 2, 64)
    stepped, state = transducer.step(mx.array([1, 2, 3]), start)
    taken = state.take(mx.array([2, 0]))
    assert mx.array_equal(taken.cell[0], state.cell[2])
    kept = state.where(mx.array([True, False, True]), start)
    assert mx.array_equal(kept.hidden[1], start.hidden[1])
    assert mx.array_equal(kept.hidden[2], state.hidden[2])
    # A row does not depend on the rows beside it
    alone, _ = transducer.step(mx.array([3]), transducer.start(1)[1])
    assert np.abs(np.array(alone[0] - stepped[2])).max() <= 1e-6
    assert first.shape == stepped.shape == (3, 64)


def test_blank_moves_nothing_but_the_recurrence() -> None:
    # SOS is a zero embedding from the zero state: feeding blank from the zero state must equal the start.
    transducer = model("rnnt.nemo").transducer
    assert transducer is not None
    started, state = transducer.start(1)
    zero = state._replace(hidden=mx.zeros_like(state.hidden), cell=mx.zeros_like(state.cell))
    fed, _ = transducer.step(mx.array([transducer.blank]), zero)
    assert np.abs(np.array(started - fed)).max() <= 1e-6


def test_sixteen_bit_weights_give_sixteen_bit_frames_throughout() -> None:
    loaded = load_nemo(FOLDER / "hybrid", mx.bfloat16)
    encoded = loaded.encode(speech()[:2])
    assert encoded.frames.dtype == mx.bfloat16
    transducer = loaded.transducer
    assert transducer is not None
    predicted, state = transducer.start(2)
    assert predicted.dtype == state.hidden.dtype == mx.bfloat16
    labels, durations = transducer.logits(transducer.project_encoder(encoded.frames[:, 0]), predicted)
    assert labels.dtype == mx.bfloat16
    assert durations is not None
    stepped, _ = transducer.step(mx.array([1, 2]), state)
    assert stepped.dtype == mx.bfloat16
    head = loaded.ctc
    assert head is not None
    assert head.log_probs(encoded.frames).dtype == mx.float32
    # 8 bits of mantissa over two layers and a subsampling: a percent or two of the largest value
    exact = model("hybrid").encode(speech()[:2])
    gap = np.abs(np.array(encoded.frames.astype(mx.float32) - exact.frames)).max()
    assert gap <= 0.1 * np.abs(np.array(exact.frames)).max()


def test_positions_of_usual_lengths_are_made_once() -> None:
    # Given an encoder and one of its layers
    encoder = model("hybrid.nemo").network.encoder
    attention = encoder.layers[0].self_attn
    # When utterances of two usual lengths and one of many minutes ask for positions
    short, usual = encoder.positions(1, mx.float32), encoder.positions(USUAL_FRAMES, mx.float32)
    long = encoder.positions(USUAL_FRAMES + 1, mx.float32)
    keys = attention._position_keys(short)
    # Then the usual ones share a table and its keys, and the long one leaves nothing behind
    assert short.table is usual.table
    assert short.table.shape == (2 * USUAL_FRAMES - 1, 64)
    assert long.table.shape == (2 * USUAL_FRAMES + 1, 64)
    assert attention._position_keys(long).shape == (1, 4, 2 * USUAL_FRAMES + 1, 16)
    assert attention._position_keys(usual) is keys
    assert encoder.positions(7, mx.float32).table is short.table


def test_kept_positions_are_made_again_of_other_weights() -> None:
    loaded = load_nemo(FOLDER / "hybrid")
    encoder = loaded.network.encoder
    attention = encoder.layers[0].self_attn
    before = attention._position_keys(encoder.positions(3, mx.float32))
    attention.linear_pos.weight = attention.linear_pos.weight * 2
    after = attention._position_keys(encoder.positions(3, mx.float32))
    assert np.abs(np.array(after - 2 * before)).max() <= 1e-5 * np.abs(np.array(after)).max()


def test_buckets_hold_a_length_and_little_more() -> None:
    lengths = range(1, 5_000)
    assert all(n <= length_bucket(n) <= max(n + 7, n * 1.125) for n in lengths)
    assert all(length_bucket(length_bucket(n)) == length_bucket(n) for n in lengths)
    # Of up to 30 s there are few
    assert len({length_bucket(n) for n in range(1, 376)}) == 28


def test_frames_are_the_same_bits_in_any_company() -> None:
    # Given utterances of several lengths, one too short for a frame
    loaded = model("hybrid.nemo")
    utterances = [*speech(), np.zeros(10, np.float32), *[samples[:9_000] for samples in speech()]]
    alone = [loaded.encode([samples]) for samples in utterances]
    for seed in range(3):
        # When they are encoded together in any order
        order = np.random.default_rng(seed).permutation(len(utterances))
        together = loaded.encode([utterances[index] for index in order])
        # Then not a bit of one differs from when it was alone
        for row, index in enumerate(order):
            length = int(alone[index].lengths[0])
            assert int(together.lengths[row]) == length
            assert mx.array_equal(together.frames[row, :length], alone[index].frames[0])


def test_a_long_recording_is_transformed_in_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    import worker.models.front_ends.log_mel as features

    samples = speech()[2]
    whole = np.array(model("hybrid.nemo").features([samples])[0])
    monkeypatch.setattr(features, "FRAMES_PER_BLOCK", 100)
    parts = np.array(model("hybrid.nemo").features([samples])[0])
    assert np.abs(whole - parts).max() <= 1e-6


def test_features_of_a_batch_are_those_of_each_alone_on_host_and_device(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    front_end = model("hybrid.nemo").front_end
    utterances = [*speech(), np.zeros(10, np.float32), speech()[1][:9_000]]
    made = []
    for spectra in (front_end.host_spectra, None):
        monkeypatch.setattr(front_end, "host_spectra", spectra)
        together, lengths = front_end.batch(utterances)
        for row, samples in enumerate(utterances):
            alone = front_end(samples)
            assert mx.array_equal(together[row, : lengths[row]], alone)
            assert not np.array(together[row, lengths[row] :]).any()
        made.append(np.array(together))
    # A band of little power is the rounding of the device's transform.
    assert np.abs(made[0] - made[1]).mean() < 1e-4


def test_a_neighbour_of_no_numbers_does_no_harm() -> None:
    # Given an utterance of NaN beside a real one
    loaded = model("hybrid.nemo")
    broken = np.full(20_000, np.nan, np.float32)
    together = loaded.encode([speech()[0], broken])
    # Then the real one is what it is beside silence of the same length
    beside_silence = loaded.encode([speech()[0], np.zeros(20_000, np.float32)])
    assert mx.array_equal(together.frames[0], beside_silence.frames[0])
    assert np.isnan(np.array(together.frames[1, : int(together.lengths[1])])).all()
