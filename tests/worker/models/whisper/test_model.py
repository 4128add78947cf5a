"""Features, encoder, decoder, languages and word times against the numpy restatement."""

from collections.abc import Sequence
from pathlib import Path
from typing import Literal

import mlx.core as mx
import numpy as np
import pytest

from kernels.attention import tile_keys
from kernels.attention.dtw import dtw
from kernels.nn.row_products import can_run
from kernels.runtime import use_backend
from spool.errors import AudioTooLong, InvalidRequest
from tests.golden.whisper_reference import log_softmax, openai_warp, softmax
from tests.worker.models.whisper.fixtures import SECONDS, align, reference, tiny_model, windows
from tests.worker.models.whisper.tiny import make_dims, make_tensors, tone
from worker.decode import AttentionSearch, BeamSettings, SearchRequest, compression_ratio
from worker.models import (
    LANGUAGE_CODES,
    DecodeRequest,
    HeardWindow,
    Languages,
    PreprocessorConfig,
    RuleState,
    SpecialTokens,
    Window,
    attend_frames,
    attention_matrix,
    context_frames,
    log_mel,
    mel_filters,
)

pytestmark = pytest.mark.slow

BATCH_TOLERANCE = 1e-4  # a CPU's products depend on their number of rows in the last digits
GOLDEN = Path(__file__).parents[3] / "golden" / "whisper_align.npz"


def plain_log_mel(samples: np.ndarray, mels: int) -> np.ndarray:
    padded = np.pad(np.pad(samples.astype(np.float64), (0, 480_000 - len(samples))), 200, mode="reflect")
    taper = 0.5 - 0.5 * np.cos(2 * np.pi * np.arange(400) / 400)
    frames = np.lib.stride_tricks.sliding_window_view(padded, 400)[::160][:3000]
    power = np.abs(np.fft.rfft(frames * taper, axis=1)) ** 2
    mel = np.log10(np.maximum(power @ mel_filters(PreprocessorConfig(features=mels, n_fft=400)).T, 1e-10))
    return (np.maximum(mel, mel.max() - 8) + 4) / 4


@pytest.mark.parametrize("count", [480_000, 479_999, 479_750, 479_801, 160_000, 1601, 1600, 161, 1])
@pytest.mark.parametrize("mels", [80, 128])
def test_features_are_the_plain_formula(count: int, mels: int) -> None:
    samples = tone(30.0)[:count]
    # Both in 64 bit, rounded once to 32.
    assert np.abs(log_mel(samples, mels) - plain_log_mel(samples, mels)).max() < 1e-6


def test_silence_and_too_long() -> None:
    assert np.array_equal(log_mel(np.zeros(1000, np.float32), 80), np.full((3000, 80), -1.5, np.float32))
    with pytest.raises(AudioTooLong, match=r"30\.01 s"):
        log_mel(np.zeros(480_160, np.float32), 80)


def test_filters_cover_the_band() -> None:
    filters = mel_filters(PreprocessorConfig(features=80, n_fft=400))
    assert filters.shape == (80, 201)
    # Equal area: each triangle holds 1 over 40 Hz bins, but for sampling it at them.
    assert abs(float(filters.sum(axis=1)[40:].mean()) * 40 - 1) < 0.02


def test_encoder_is_the_restatement() -> None:
    model, samples = tiny_model(), tone(SECONDS[1], 1)
    mel = log_mel(samples, 80)
    assert windows()[1].length == 150
    assert model.frame_seconds == 0.02
    for window, count in ((windows()[1], 640), (model.encode([samples], [True])[0], 1500)):
        frames = np.array(window.frames)
        assert len(frames) == count
        # float32 rounding through two layers at a norm's unit scale.
        assert np.abs(frames - reference().encode(mel[: 2 * count])).max() < 1e-4


@pytest.mark.parametrize(
    ("seconds", "frames"), [(0.0, 512), (2.24, 512), (2.26, 640), (19.9, 1408), (20.2, 1500), (30.0, 1500)]
)
def test_the_encoder_hears_the_sound_and_8_seconds_of_silence(seconds: float, frames: int) -> None:
    assert context_frames(round(seconds * 16_000)) == frames
    assert tiny_model().frames_in(round(seconds * 16_000), full=True) == 1500


def test_a_window_is_the_same_in_any_batch() -> None:
    model, samples = tiny_model(), [tone(seconds, seed) for seed, seconds in enumerate(SECONDS)]
    prompts = [model.ids.prompt(previous=range(300, 300 + 3 * row)) for row in range(len(samples))]
    together = model.encode(samples)
    shares, forced = (
        model.no_speech(together, prompts),
        np.array(model.head.logits_after(together, prompts)),
    )
    for row in range(len(samples)):
        alone = model.encode(samples[row : row + 1])
        assert np.array_equal(np.array(alone[0].frames), np.array(together[row].frames))
        # What the decoder makes of a window does not know how long its neighbours are.
        for kept, other in zip(alone[0].batch.cross, together[row].batch.cross, strict=True):
            count = len(alone[0].frames)
            assert np.array_equal(np.array(kept[1][0]), np.array(other[1][row, :, :count]))
        assert np.allclose(model.no_speech(alone, prompts[row : row + 1]), shares[row], rtol=1e-5)
        logits = np.array(model.head.logits_after(alone, prompts[row : row + 1]))[0]
        assert np.abs(logits - forced[row]).max() < BATCH_TOLERANCE


def test_frames_of_unlike_contexts_are_attended_to_bit_for_bit_as_if_alone() -> None:
    rng = np.random.default_rng(5)
    queries, keys, values = (
        mx.array(rng.normal(size=(3, 2, frames, 64)).astype(np.float32)) for frames in (4, 1500, 1500)
    )
    counts = np.array([512, 1500, 640], np.int32)
    output, products = attend_frames(queries, [(tile_keys(keys), values, mx.array(counts))])
    for row, count in enumerate(counts.tolist()):
        own = tile_keys(keys[row : row + 1, :, :count])
        alone = attend_frames(queries[row : row + 1], [(own, values[row : row + 1, :, :count], None)])
        assert np.array_equal(np.array(alone[0][0]), np.array(output[row]))
        assert np.array_equal(np.array(alone[1][0]), np.array(products[row, ..., :count]))


def test_prompts_of_unlike_lengths_and_single_steps_are_the_restatement() -> None:
    model, restated = tiny_model(), reference()
    prompts = [[50258, 50259, 50359], [50258], [50362, 5, 6, 7, 50258, 50259, 50359, 50364]]
    encoded = windows()[:3]
    frames = [np.array(window.frames) for window in encoded]
    after = np.array(model.head.logits_after(encoded, prompts))
    state = model.head.start(encoded, prompts, beam=1)
    logits, state = model.head.step(mx.array([[prompt[-1]] for prompt in prompts]), state)
    following, _ = model.head.step(mx.array([[11], [12], [13]]), state)
    for row, prompt in enumerate(prompts):
        expected, cache, _ = restated.decode(prompt, frames[row])
        # float32 rounding; logits are up to 20.
        assert np.abs(after[row] - expected[-1]).max() < 1e-3
        assert np.abs(np.array(logits[row]) - expected[-1]).max() < 1e-3
        second, _, _ = restated.decode([11 + row], frames[row], cache)
        assert np.abs(np.array(following[row]) - second[-1]).max() < 1e-3


def test_the_parent_table_follows_every_reordering() -> None:
    model, restated, beam = tiny_model(), reference(), 3
    encoded, generator = windows()[:2], np.random.default_rng(4)
    prompts = [[50258, 50259], [50258, 50259, 50359]]
    state = model.head.start(encoded, prompts, beam)
    logits, state = model.head.step(mx.array([[prompt[-1]] * beam for prompt in prompts]), state)
    histories = [[list(prompt) for _ in range(beam)] for prompt in prompts]
    for step in range(70):  # past the pool's first growth
        parents = generator.integers(0, beam, size=(2, beam)).astype(np.int32)
        tokens = generator.integers(0, 50000, size=(2, beam)).astype(np.int32)
        state = model.head.reorder(state, mx.array(parents))
        histories = [
            [[*histories[b][parents[b, k]], int(tokens[b, k])] for k in range(beam)] for b in range(2)
        ]
        if step == 30:
            state = model.head.select(state, [1, 0])
            histories, tokens, encoded = histories[::-1], tokens[::-1], encoded[::-1]
        logits, state = model.head.step(mx.array(np.ascontiguousarray(tokens)), state)
    for b in range(2):
        frames = np.array(encoded[b].frames)
        for k in range(beam):
            expected = restated.decode(histories[b][k], frames)[0][-1]
            assert np.abs(np.array(logits[b * beam + k]) - expected).max() < 2e-3


def test_languages_and_no_speech() -> None:
    model, encoded = tiny_model(), windows()[:2]
    prompt = model.ids.prompt("de", "translate", previous=[5, 6])
    answer = model.detect_languages(encoded)[1]
    logits = reference().decode([50258], np.array(encoded[1].frames))[0][-1]
    shares = softmax(logits[50259:50358])
    assert answer.best == LANGUAGE_CODES[int(shares.argmax())]
    assert np.abs(np.array(list(answer.probabilities.values())) - shares).max() < 1e-4
    behind = softmax(reference().decode(prompt[:4], np.array(encoded[1].frames))[0][-1])
    assert abs(float(model.no_speech(encoded, [prompt] * 2)[1]) - float(behind[50362])) < 1e-5
    assert tiny_model(51864).detect_languages(windows(51864)[:1])[0].best == "en"


def test_languages_are_chosen_among_those_asked_for() -> None:
    model, encoded = tiny_model(), windows()[:2]
    everything = model.detect_languages(encoded)[0]
    codes = tuple(sorted(everything.probabilities, key=lambda code: everything.probabilities[code])[:3])
    free, bound, single, pinned = (
        model.ask(encoded[:1], [model.prepare(options)], [None])[0]
        for options in (
            DecodeRequest(),
            DecodeRequest(language=codes),
            DecodeRequest(language=codes, single=True),
            DecodeRequest(language="de"),
        )
    )
    assert len(free.languages) == 5
    assert free.prompts[0].language == everything.best
    # In doubt both of the likeliest are asked, without times at first.
    assert [prompt.language for prompt in bound.prompts] == [codes[2], codes[1]]
    assert [prompt.timestamps for prompt in (*bound.prompts, *bound.others)] == [False, False, True, True]
    assert [prompt.language for prompt in single.prompts] == [codes[2]]
    assert {code for code, _ in bound.languages} <= set(codes)
    assert sum(share for _, share in bound.languages) == pytest.approx(1.0, abs=2e-3)
    assert [prompt.language for prompt in (*pinned.prompts, *pinned.others)] == ["de", "de"]
    assert pinned.languages == ()
    (known,) = model.ask(encoded[:1], [model.prepare(DecodeRequest())], ["fr"])
    assert ([prompt.language for prompt in known.prompts], known.languages) == (["fr"], ())
    with pytest.raises(InvalidRequest, match=r"language: .* does not tell languages apart"):
        tiny_model(51864).prepare(DecodeRequest(language=("de", "en")))
    with pytest.raises(InvalidRequest, match=r"language: .* does not know 'xx'"):
        model.prepare(DecodeRequest(language=("de", "xx")))


def test_a_language_is_doubted_below_odds_of_ten_to_one() -> None:
    assert Languages({"en": 0.08, "de": 0.81}).asked == ("de",)
    assert Languages({"fr": 0.05, "en": 0.09, "de": 0.81}).asked == ("de", "en")
    assert Languages({"en": 0.5}).asked == ("en",)


def test_scores_are_teacher_forced_sums() -> None:
    model, window, prompt = tiny_model(), windows()[2], [50258, 50259, 50359]
    sequences = [[5, 9, 50257], [7], [50364, 40, 41, 42, 50400, 50257]]
    scores = model.head.score([window], [prompt], [sequences])[0]
    for score, sequence in zip(scores, sequences, strict=True):
        logits = reference().decode(prompt + sequence, np.array(window.frames))[0]
        rows = log_softmax(logits.astype(np.float64))[len(prompt) - 1 : -1]
        assert abs(float(score) - rows[np.arange(len(sequence)), sequence].sum()) < 2e-3
    assert model.head.score([window], [prompt], [[]])[0].shape == (0,)


def test_warping_real_matrices_gives_openais_starts() -> None:
    golden = np.load(GOLDEN)
    count = len(golden.files) // 2
    assert count >= 3
    for index in range(count):
        matrix = golden[f"matrix.{index}"]
        rows, columns = mx.array([matrix.shape[0]]), mx.array([matrix.shape[1]])
        starts = np.array(dtw(mx.array(matrix[None]), rows, columns))[0] / 50
        assert np.array_equal(starts, golden[f"starts.{index}"])


def test_times_are_those_of_an_utterance_alone() -> None:
    model, encoded = tiny_model(), windows()
    texts = [[100 + 3 * at for at in range(5 + 4 * index)] for index in range(len(encoded))]
    together = align(model, encoded, texts)
    for index in (0, 3, 5):
        alone = align(model, [encoded[index]], [texts[index]])[0]
        batched = together[index]
        assert alone is not None
        assert batched is not None
        assert np.array_equal(alone.starts, batched.starts)
        assert np.array_equal(alone.probabilities, batched.probabilities)
        assert len(alone.starts) == len(texts[index]) + 1
        assert (np.diff(alone.starts) >= 0).all()
        assert alone.starts[-1] <= SECONDS[index]


class Script:
    """Rules by which each utterance says its text and then ends; its options are its number."""

    def __init__(self, texts: Sequence[Sequence[int]], end: int) -> None:
        longest = max(map(len, texts)) + 1
        self._next = mx.array([[*text, *[end] * (longest - len(text))] for text in texts])

    def start(self, requests: Sequence[int], beam: int) -> RuleState:
        rows = mx.array(list(requests))[:, None]
        return {"row": mx.broadcast_to(rows, (len(requests), beam)), "said": mx.zeros_like(rows)}

    def best(
        self, logits: mx.array, state: RuleState, count: int, gains: mx.array | None = None
    ) -> tuple[mx.array, mx.array]:
        said = mx.minimum(state["said"], self._next.shape[1] - 1)
        tokens = self._next[state["row"], said].astype(mx.int32)
        return tokens, mx.zeros(tokens.shape)

    def advance(self, state: RuleState, tokens: mx.array) -> RuleState:
        return {**state, "said": state["said"] + 1}


@pytest.mark.skipif(not can_run(), reason="only products that are packed for a CPU leave trails")
def test_a_search_leaves_the_times_of_its_answers() -> None:
    # Given answers of unlike lengths, of which two are searched at once
    model, encoded = tiny_model(), windows()
    texts = [[100 + 3 * at for at in range(5 + 4 * index)] for index in range(len(encoded))]
    prompt = tuple(model.ids.prompt("en", timestamps=False))
    search = AttentionSearch(model.head, Script(texts, model.ids.eot), BeamSettings(), width=2)
    # When they have been found
    answers = search.run(SearchRequest(row, each, prompt, row) for row, each in enumerate(encoded))
    # Then their times are those of a pass of its own, and a beam leaves none
    assert [list(answer.hypotheses[0].tokens) for answer in answers] == texts
    read, left = (
        align(model, encoded, texts),
        align(model, encoded, texts, [a.trail for a in answers]),
    )
    for forced, found in zip(read, left, strict=True):
        assert forced is not None
        assert found is not None
        assert np.array_equal(forced.starts, found.starts)
        assert np.allclose(forced.probabilities, found.probabilities, rtol=1e-4)
    beam = AttentionSearch(model.head, model.rules, BeamSettings(2, max_new_tokens=3))
    assert beam.run([SearchRequest(0, encoded[0], prompt)])[0].trail is None


@pytest.mark.parametrize(("task", "token"), [("transcribe", 50359), ("translate", 50358)])
def test_times_are_the_restatements(task: Literal["transcribe", "translate"], token: int) -> None:
    model, window, tokens = tiny_model(), windows()[1], [300, 301, 302, 303]
    prompt = [50258, 50259, token, 50363]
    logits, _, products = reference().decode([*prompt, *tokens, 50257], np.array(window.frames))
    chosen = np.stack([products[layer][head] for layer, head in ((0, 1), (1, 0))])[:, :, :150]
    rows, columns = openai_warp(-attention_matrix(chosen)[3:-1].astype(np.float64))
    starts = columns[np.pad(np.diff(rows), (1, 0), constant_values=1).astype(bool)] / 50
    asked = model.ask([window], [model.prepare(DecodeRequest(language="en", task=task))], [None])[0].prompts[
        0
    ]
    heard = HeardWindow(Window(0, 48_000), window, asked, tuple(tokens), np.zeros(48_000, np.float32))
    times = model.time([heard])[0].times
    assert np.allclose(times.starts, starts)
    assert np.allclose(times.probabilities, softmax(logits[3:-2, :50257])[np.arange(4), tokens], rtol=1e-3)


def test_no_times_where_there_is_nothing_to_tell() -> None:
    model = tiny_model()
    short = model.encode([tone(0.02)])[0]
    assert short.length == 1
    assert align(model, [short, windows()[1]], [[5], []]) == [None, None]


def test_prompts() -> None:
    ids, english = SpecialTokens(51866), SpecialTokens(51864)
    assert ids.prompt("yue", timestamps=False) == [50258, 50358, 50360, 50364]
    assert english.prompt(previous=range(300)) == [50360, *range(77, 300), 50257]
    assert (SpecialTokens(51865).time, english.time, ids.time) == (50364, 50363, 50365)
    for model, options, message in (
        (tiny_model(), DecodeRequest(language="yue"), "language: .* does not know 'yue'"),
        (tiny_model(51864), DecodeRequest(language="de"), "does not know 'de'; it knows: en"),
        (tiny_model(51864), DecodeRequest(task="translate"), "cannot translate"),
    ):
        with pytest.raises(InvalidRequest, match=message):
            model.prepare(options)


def test_sizes() -> None:
    with use_backend("reference"):
        model = tiny_model.__wrapped__()
    numbers = sum(value.size for value in make_tensors(make_dims()).values())
    keys = 2 * 2 * 128 + 2 * 128  # zero biases of fused keys, four in all attention blocks of both sides
    assert 0 <= model.size - 4 * numbers <= 8 * keys
    if can_run():  # weights of 16 bits stay 16 bits: most of them are the decoder's
        assert model.size / 2 < tiny_model().size < 0.6 * model.size
    assert model.head.bytes_a_token == 2 * 2 * 128 * 4


def test_compression() -> None:
    assert compression_ratio("") == 0.0
    assert compression_ratio("you " * 60) > 2.4 > compression_ratio("The quick brown fox jumps over it.")
