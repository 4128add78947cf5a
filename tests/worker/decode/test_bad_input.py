"""Logits that are no logits, in one row of a batch: that row fails, its neighbours never know. Every search.

Also what every search must take: a beam wider than the vocabulary, one frame, no frame.
"""

from functools import partial

import mlx.core as mx
import numpy as np
import pytest

from spool.domain import Hypothesis
from spool.errors import EngineError
from tests.worker.decode.reference import D_MODEL, Encoded, HeadModel, random_frames, tiny_transducer
from worker.decode import best_of
from worker.decode.search import search
from worker.models import CtcDecoder, CtcHead, DecodeRequest, SearchOptions, Tokenizer, Transducer

PIECES = (*("▁" + letter for letter in "abcdefgh"), "<unk>")
LENGTHS = [13, 1, 20, 0, 7, 9]
BAD, AT = 2, 11  # the row that is spoiled, and from which frame on
MARK = 1e4  # no frame of a model holds it
FUSED = DecodeRequest(phrases=("a b", "g"), boost=0.5)


class Spoiled(Transducer):
    """Answers `poison` to every frame that carries the mark."""

    def __init__(self, sound: Transducer, poison: float, part: str) -> None:
        vars(self).update(vars(sound))
        self._sound, self._poison, self._part = sound, poison, part

    def project_encoder(self, frames: mx.array) -> mx.array:
        # The mark goes beside the projection, which has no room for it.
        marked = mx.where(frames[..., :1] == MARK, 1.0, 0.0)
        clean = self._sound.project_encoder(mx.where(frames == MARK, 0.0, frames))
        return mx.concatenate([clean, marked], axis=-1)

    def joint_logits(self, enc_proj: mx.array, pred_proj: mx.array) -> mx.array:
        return self._whole(self.logits(enc_proj, pred_proj))

    def join_rows(self, enc_proj: mx.array, pred_proj: mx.array, pairs: mx.array) -> mx.array:
        clean = self._sound.join_rows(enc_proj[..., :-1], pred_proj, pairs)
        marked = mx.take(enc_proj[..., -1:], mx.maximum(pairs[0], 0), axis=0) > 0
        return self._whole(self._spoil(self.split_scores(clean), marked))

    def logits(self, enc_proj: mx.array, pred_proj: mx.array) -> tuple[mx.array, mx.array | None]:
        return self._spoil(self._sound.logits(enc_proj[..., :-1], pred_proj), enc_proj[..., -1:] > 0)

    def _spoil(
        self, parts: tuple[mx.array, mx.array | None], marked: mx.array
    ) -> tuple[mx.array, mx.array | None]:
        labels, spread = parts
        if spread is not None and self._part == "durations":
            return labels, mx.where(marked, self._poison, spread)
        if self._part == "one label":
            marked = marked & (mx.arange(labels.shape[-1]) == 3)
        return mx.where(marked, self._poison, labels), spread

    def _whole(self, parts: tuple[mx.array, mx.array | None]) -> mx.array:
        return mx.concatenate([part for part in parts if part is not None], axis=-1)


class SpoiledHead(CtcHead):
    """A CTC head whose frames are its log-probabilities."""

    def __init__(self) -> None:
        super().__init__(CtcDecoder(len(PIECES) + 1, len(PIECES)), len(PIECES))

    def log_probs(self, frames: mx.array, blank_penalty: float = 0.0) -> mx.array:
        return frames


Model = partial(HeadModel, tokenizer=Tokenizer(PIECES))


Asked = tuple[SearchOptions, DecodeRequest | None]


def searches(wide: int = 4) -> list[Asked]:
    return [
        (SearchOptions(decoder=decoder, beam=wide, nbest=wide), ask)
        for decoder in ("greedy", "beam")
        for ask in (None, FUSED)
    ]


def named(asked: object) -> str:
    if isinstance(asked, tuple):
        return asked[0].decoder + ("-fused" if asked[1] else "")
    return str(asked)


every_search = pytest.mark.parametrize("asked", searches(), ids=named)


def found_by(asked: Asked, model: HeadModel, encoded: Encoded) -> list[list[Hypothesis]]:
    options, ask = asked
    return search(model, encoded, options, None if ask is None else [ask] * len(encoded.lengths))


def decided(rows: list[Hypothesis]) -> list[tuple[tuple[int, ...], ...]]:
    return [(h.tokens, h.times, h.durations) for h in rows]


def assert_fails_alone(found: list[list[Hypothesis]], clean: list[list[Hypothesis]]) -> None:
    assert found[BAD] == []
    for row, (one, other) in enumerate(zip(found, clean, strict=True)):
        if row != BAD:
            assert decided(one) == decided(other)
            assert [h.score for h in one] == pytest.approx([h.score for h in other], abs=1e-5)
            assert one
    with pytest.raises(EngineError, match="not finite"):
        best_of(found[BAD])


@every_search
@pytest.mark.parametrize("kind", ["rnnt", "tdt"])
@pytest.mark.parametrize(
    ("poison", "part"),
    [
        (-np.inf, "labels"),
        (np.nan, "labels"),
        (np.nan, "one label"),
        (np.inf, "one label"),
        (-np.inf, "durations"),
        (np.nan, "durations"),
    ],
)
def test_a_transducers_bad_row_fails_alone(asked: Asked, kind: str, poison: float, part: str) -> None:
    if kind == "rnnt" and part == "durations":
        part = "labels"
    sound = tiny_transducer(3, len(PIECES), (0, 1, 2, 3, 4) if kind == "tdt" else ())
    frames = random_frames(1, LENGTHS)
    clean = found_by(asked, Model(sound), Encoded(frames, np.array(LENGTHS, np.int32)))
    spoiled = np.array(frames)
    spoiled[BAD, AT:] = MARK

    model = Model(Spoiled(sound, poison, part))
    found = found_by(asked, model, Encoded(mx.array(spoiled), np.array(LENGTHS, np.int32)))

    assert_fails_alone(found, clean)


def ctc_rows(seed: int) -> np.ndarray:
    logits = np.random.default_rng(seed).normal(0, 2, (len(LENGTHS), max(LENGTHS), len(PIECES) + 1))
    return (logits - np.log(np.exp(logits).sum(-1, keepdims=True))).astype(np.float32)


@every_search
@pytest.mark.parametrize("poison", [-np.inf, np.nan, np.inf])
@pytest.mark.parametrize("whole", [True, False])
def test_a_ctc_heads_bad_row_fails_alone(asked: Asked, poison: float, whole: bool) -> None:
    if asked[0].decoder == "greedy":
        asked = (asked[0], None)
    rows, lengths = ctc_rows(2), np.array(LENGTHS, np.int32)
    model = Model(ctc=SpoiledHead())
    clean = found_by(asked, model, Encoded(mx.array(rows), lengths))
    if whole or poison == -np.inf:  # one impossible label is no failure
        rows[BAD, AT:] = poison
    else:
        rows[BAD, AT, 3] = poison

    found = found_by(asked, model, Encoded(mx.array(rows), lengths))

    assert_fails_alone(found, clean)


@every_search
@pytest.mark.parametrize("kind", ["rnnt", "tdt", "ctc"])
def test_what_lies_behind_an_utterances_end_is_never_read(asked: Asked, kind: str) -> None:
    if kind == "ctc":
        if asked[0].decoder == "greedy":
            asked = (asked[0], None)
        model, rows = Model(ctc=SpoiledHead()), ctc_rows(3)
    else:
        sound = tiny_transducer(3, len(PIECES), (0, 1, 2, 3, 4) if kind == "tdt" else ())
        model, rows = Model(sound), np.array(random_frames(4, LENGTHS))
    lengths = np.array(LENGTHS, np.int32)
    clean = found_by(asked, model, Encoded(mx.array(rows), lengths))
    for row, length in enumerate(LENGTHS):
        rows[row, length:] = np.nan

    found = found_by(asked, model, Encoded(mx.array(rows), lengths))

    assert [decided(row) for row in found] == [decided(row) for row in clean]
    assert all(found)


@pytest.mark.parametrize("asked", searches(32), ids=named)
@pytest.mark.parametrize("kind", ["rnnt", "tdt", "ctc"])
def test_a_beam_wider_than_the_vocabulary_over_one_frame_and_none(asked: Asked, kind: str) -> None:
    lengths = np.array([1, 0, 3], np.int32)
    if kind == "ctc":
        if asked[0].decoder == "greedy":
            asked = (asked[0], None)
        model, rows = Model(ctc=SpoiledHead()), ctc_rows(3)[:3, :3]
    else:
        sound = tiny_transducer(5, len(PIECES), (0, 1, 2) if kind == "tdt" else ())
        model, rows = Model(sound), np.array(random_frames(4, [3, 3, 3]))
    assert rows.shape[2] in {D_MODEL, len(PIECES) + 1}

    found = found_by(asked, model, Encoded(mx.array(rows), lengths))

    assert [h.tokens for h in found[1]] == [()]
    for row, length in ((0, 1), (2, 3)):
        alone = found_by(asked, model, Encoded(mx.array(rows[row : row + 1, :length]), lengths[[row]]))[0]
        assert decided(found[row]) == decided(alone)
        assert all(time < length for h in found[row] for time in h.times)
        assert len(found[row]) > len(PIECES) or asked[0].decoder == "greedy"
