"""The searches against NeMo: from its own encoder frames, and from samples through our whole model.

The golden lists were made one utterance at a time; here each is decoded in a batch of different lengths and
alone.
"""

import json
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import mlx.core as mx
import numpy as np
import pytest

from kernels.runtime import Backend, use_backend
from ops.testbed.nemo_model import load_nemo
from spool.domain import Hypothesis
from worker.decode.search import search
from worker.models import DecodeRequest, NemoModel, SearchOptions

pytestmark = pytest.mark.slow

GOLDEN = Path(__file__).parents[2] / "golden"
SCORE = 2e-3  # NeMo's float32 sums in another order, over some hundred steps
TRANSDUCERS = ("tdt", "rnnt", "hybrid", "causal")
# The same weights under another attention: only its frames differ, so they are searched and not encoded here.
FRAMES = (*TRANSDUCERS, "hybrid_local")
WEIGHTS = {"hybrid_local": "hybrid"}
CTC = ("ctc", "hybrid", "hybrid_local")
BEAMS = (1, pytest.param(2, marks=pytest.mark.long), 4, 8, pytest.param(16, marks=pytest.mark.long))
ARPA, ALPHA = str(GOLDEN / "lm.arpa"), 0.3
BETA = 1.5  # a token


@dataclass(frozen=True)
class Encoded:
    frames: mx.array
    lengths: np.ndarray


@dataclass(frozen=True)
class Golden:
    model: NemoModel
    arrays: dict[str, np.ndarray]

    @property
    def encoded(self) -> Encoded:
        return Encoded(mx.array(self.arrays["encoder"]), self.arrays["encoder_len"])

    @property
    def has_durations(self) -> bool:
        return "tdt" in self.model.heads

    def alone(self, row: int) -> Encoded:
        length = int(self.arrays["encoder_len"][row])
        return Encoded(self.encoded.frames[row : row + 1, :length], self.encoded.lengths[row : row + 1])

    def lists(self, key: str) -> list[list[Hypothesis]]:
        columns = {name: self.arrays[f"{key}.{name}"] for name in ("tok", "time", "dur", "len", "score", "n")}
        return [
            [self._entry(columns, row, rank) for rank in range(int(count))]
            for row, count in enumerate(columns["n"])
        ]

    @staticmethod
    def _entry(columns: dict[str, np.ndarray], row: int, rank: int) -> Hypothesis:
        length = int(columns["len"][row, rank])
        tokens, times, durations = (
            tuple(columns[name][row, rank, :length].tolist()) for name in ("tok", "time", "dur")
        )
        return Hypothesis(tokens, float(columns["score"][row, rank]), times, durations)


def utterances() -> list[np.ndarray]:
    with np.load(GOLDEN / "audio.npz") as file:
        audio, lengths = file["audio"], file["lengths"]
    return [row[:length].astype(np.float32) / 32768 for row, length in zip(audio, lengths, strict=True)]


@pytest.fixture(scope="module")
def golden() -> Callable[[str], Golden]:
    loaded: dict[str, Golden] = {}

    def get(name: str) -> Golden:
        if name not in loaded:
            with np.load(GOLDEN / f"{name}.npz") as file, np.load(GOLDEN / f"{name}.beams.npz") as beams:
                weights = GOLDEN / f"{WEIGHTS.get(name, name)}.nemo"
                loaded[name] = Golden(load_nemo(weights, mx.float32), {**file, **beams})
        return loaded[name]

    return get


def assert_list(found: list[Hypothesis], expected: list[Hypothesis], *, durations: bool) -> None:
    assert [(h.tokens, h.times) for h in found] == [(h.tokens, h.times) for h in expected]
    if durations:
        assert [h.durations for h in found] == [h.durations for h in expected]


def assert_scores(found: list[Hypothesis], expected: list[Hypothesis]) -> None:
    assert [h.score for h in found] == pytest.approx([h.score for h in expected], abs=SCORE)


@pytest.mark.parametrize("name", FRAMES)
def test_greedy_equals_nemo(golden: Callable[[str], Golden], name: str) -> None:
    held = golden(name)
    expected = held.lists("greedy")
    assert sum(len(row[0].tokens) for row in expected) > 30

    batched = search(held.model, held.encoded, SearchOptions())

    for row, want in enumerate(expected):
        assert_list(batched[row], want, durations=held.has_durations)
        assert_list(
            search(held.model, held.alone(row), SearchOptions())[0], want, durations=held.has_durations
        )


@pytest.mark.parametrize("name", FRAMES)
@pytest.mark.parametrize("beam", BEAMS)
def test_beam_equals_nemo(golden: Callable[[str], Golden], name: str, beam: int) -> None:
    held, options = golden(name), SearchOptions(decoder="beam", beam=beam, nbest=beam)
    expected = held.lists(f"malsd.k{beam}")

    # By this machine's kernels where it has some, and by their plain-MLX references.
    batched = search(held.model, held.encoded, options)
    with use_backend(Backend.REFERENCE):
        plain = search(held.model, held.encoded, options)

    for row, want in enumerate(expected):
        for found in (batched[row], plain[row], search(held.model, held.alone(row), options)[0]):
            assert_list(found, want, durations=held.has_durations)
            assert_scores(found, want)


@pytest.mark.parametrize("name", CTC)
def test_ctc_greedy_equals_nemo(golden: Callable[[str], Golden], name: str) -> None:
    held = golden(name)
    texts = json.loads(str(held.arrays["ctc_greedy.text"]))

    found = search(held.model, held.encoded, SearchOptions(head="ctc"))

    for row, want in enumerate(held.lists("ctc_greedy")):
        # NeMo answers the best label of each frame; its text is of the collapsed runs.
        labels = np.array(want[0].tokens)
        fresh = (labels != held.model.tokenizer.blank) & (labels != np.concatenate([[-1], labels[:-1]]))
        assert found[row][0].times == tuple(np.flatnonzero(fresh).tolist())
        assert found[row][0].tokens == tuple(labels[fresh].tolist())
        assert held.model.tokenizer.decode(found[row][0].tokens) == texts[row][0]
        assert_scores(found[row], want)


@pytest.mark.parametrize("name", CTC)
@pytest.mark.parametrize("beam", BEAMS)
def test_ctc_beam_equals_nemo(golden: Callable[[str], Golden], name: str, beam: int) -> None:
    held, options = golden(name), SearchOptions(decoder="beam", beam=beam, nbest=beam, head="ctc")

    batched = search(held.model, held.encoded, options)

    for row, want in enumerate(held.lists(f"ctc_beam.k{beam}")):
        for found in (batched[row], search(held.model, held.alone(row), options)[0]):
            assert_list(found, want, durations=False)
            assert_scores(found, want)


def with_lm(held: Golden) -> list[DecodeRequest]:
    return [DecodeRequest(language_model=ARPA, lm_weight=ALPHA)] * len(held.encoded.lengths)


@pytest.mark.parametrize("name", FRAMES)
@pytest.mark.parametrize("mode", ["plain", "weighted"])
@pytest.mark.parametrize("beam", BEAMS)
def test_beam_with_a_language_model_equals_nemo(
    golden: Callable[[str], Golden], name: str, mode: str, beam: int
) -> None:
    held = golden(name)
    options = SearchOptions(decoder="beam", beam=beam, nbest=beam, lm_blanks=mode == "weighted")

    batched = search(held.model, held.encoded, options, with_lm(held))

    for row, want in enumerate(held.lists(f"malsd.k{beam}.lm.{mode}")):
        assert_list(batched[row], want, durations=held.has_durations)
        assert_scores(batched[row], want)


@pytest.mark.parametrize("name", FRAMES)
def test_greedy_with_a_language_model_equals_nemo(golden: Callable[[str], Golden], name: str) -> None:
    held = golden(name)

    batched = search(held.model, held.encoded, SearchOptions(), with_lm(held))

    for row, want in enumerate(held.lists("greedy.lm")):
        assert_list(batched[row], want, durations=False)
    assert any(a[0].tokens != b[0].tokens for a, b in zip(batched, held.lists("greedy"), strict=True))


@pytest.mark.parametrize("name", CTC)
@pytest.mark.parametrize("beam", BEAMS)
def test_ctc_beam_with_a_language_model_equals_nemo(
    golden: Callable[[str], Golden], name: str, beam: int
) -> None:
    held = golden(name)
    options = SearchOptions(decoder="beam", beam=beam, nbest=beam, head="ctc")

    batched = search(held.model, held.encoded, options, with_lm(held))

    for row, want in enumerate(held.lists(f"ctc_beam.k{beam}.lm")):
        assert_list(batched[row], want, durations=False)
        assert_scores(batched[row], want)


@pytest.mark.parametrize("name", CTC)
@pytest.mark.parametrize("key", ["beta", "lm.beta"])
@pytest.mark.parametrize("beam", [2, 8])
def test_ctc_beam_with_a_bonus_a_token_equals_nemo(
    golden: Callable[[str], Golden], name: str, key: str, beam: int
) -> None:
    held = golden(name)
    options = SearchOptions(decoder="beam", beam=beam, nbest=beam, head="ctc", beta=BETA)

    batched = search(held.model, held.encoded, options, with_lm(held) if "lm" in key else None)

    for row, want in enumerate(held.lists(f"ctc_beam.k{beam}.{key}")):
        assert_list(batched[row], want, durations=False)
        assert_scores(batched[row], want)


@pytest.mark.parametrize("name", TRANSDUCERS)
@pytest.mark.parametrize("options", [SearchOptions(), SearchOptions(decoder="beam", beam=4, nbest=4)])
def test_from_samples_the_tokens_and_times_are_nemos(
    golden: Callable[[str], Golden], name: str, options: SearchOptions
) -> None:
    held = golden(name)
    key = "greedy" if options.decoder == "greedy" else "malsd.k4"
    texts = json.loads(str(held.arrays[f"{key}.text"]))

    # The batch goes in backwards: its order must not matter.
    found = search(held.model, held.model.encode(utterances()[::-1]), options)[::-1]

    for row, want in enumerate(held.lists(key)):
        assert_list(found[row], want, durations=False)
        assert [held.model.tokenizer.decode(h.tokens) for h in found[row]] == texts[row]
