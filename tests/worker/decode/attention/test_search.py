"""The batched search against OpenAI's beam, one hypothesis at a time, on the same weights."""

from typing import Any

import mlx.core as mx
import numpy as np
import pytest

from tests.golden.whisper_reference import ReferenceRules, beam_search
from tests.worker.models.whisper.fixtures import reference, tiny_model, windows
from worker.decode import AttentionSearch, BeamSettings, SearchAnswer, SearchRequest
from worker.models import NoRules, WhisperOptions

pytestmark = pytest.mark.slow

MOST = 10
# float32 rounding of some ten log-probabilities, summed in another order.
TOLERANCE = 2e-3


def requests(count: int = 6, vocabulary: int = 51865) -> list[SearchRequest]:
    """Unlike prompts, with and without times."""
    ids, encoded = tiny_model(vocabulary).ids, windows(vocabulary)
    out = []
    for index in range(count):
        timed = index % 3 != 1
        code = "en" if vocabulary == 51864 else ("en", "de", "fr")[index % 3]
        prompt = ids.prompt(code, timestamps=timed, previous=range(100, 100 + 3 * (index % 4)))
        out.append(SearchRequest(index, encoded[index % len(encoded)], tuple(prompt), WhisperOptions(timed)))
    return out


def run(
    settings: BeamSettings, asked: list[SearchRequest], width: int = 32, vocabulary: int = 51865
) -> list[SearchAnswer]:
    model = tiny_model(vocabulary)
    return AttentionSearch(model.head, model.rules, settings, width).run(asked)


@pytest.mark.parametrize("vocabulary", [51865, pytest.param(51864, marks=pytest.mark.long)])
@pytest.mark.parametrize(("beam", "patience"), [(1, 1.0), (1, 2.0), (2, 1.5), (4, 0.5), (5, 1.0)])
def test_every_list_is_openais(beam: int, patience: float, vocabulary: int) -> None:
    model, restated = tiny_model(vocabulary), reference(vocabulary)
    settings = BeamSettings(beam, patience, max_new_tokens=MOST)
    asked = requests(4, vocabulary)
    for request, answer in zip(asked, run(settings, asked, vocabulary=vocabulary), strict=True):
        rules = ReferenceRules(model.ids, model.settings, request.options.timestamps)
        frames = np.array(request.encoded.frames)
        expected = beam_search(
            restated, frames, list(request.prompt), rules, model.ids.eot, beam, patience, MOST
        )
        found = {each.tokens: each for each in answer.hypotheses}
        assert found.keys() == {tokens for tokens, *_ in expected}
        for tokens, score, ended in expected:
            assert found[tokens].ended == ended
            assert abs(found[tokens].score - score) < TOLERANCE


def test_a_greedy_search_holds_no_logits_of_earlier_steps() -> None:
    vocabulary = 51865
    model = tiny_model(vocabulary)
    search = AttentionSearch(model.head, model.rules, BeamSettings(max_new_tokens=40))
    for request in requests(4, vocabulary):
        search.add(request)
    held = []
    while search.pending:
        search.step()
        held.append(mx.get_active_memory())
    assert len(held) > 6
    assert max(held[4:]) - held[2] < vocabulary * 4  # a row of one step


@pytest.mark.parametrize("beam", [1, 3])
def test_batch_order_and_neighbours_change_nothing(beam: int) -> None:
    settings = BeamSettings(beam, max_new_tokens=MOST)
    asked = requests(6)
    alone = {request.key: run(settings, [request])[0] for request in asked}
    for width, order in ((32, [3, 0, 5, 1, 4, 2]), (2, [5, 4, 3, 2, 1, 0]), (3, range(6))):
        for answer in run(settings, [asked[index] for index in order], width):
            own = alone[answer.key].hypotheses
            assert [each.tokens for each in answer.hypotheses] == [each.tokens for each in own]
            # What is printed: three digits.
            assert [round(each.score, 2) for each in answer.hypotheses] == pytest.approx(
                [round(each.score, 2) for each in own], abs=0.011
            )


def test_utterances_enter_and_leave_between_steps() -> None:
    model, asked = tiny_model(), requests(6)
    search = AttentionSearch(model.head, model.rules, BeamSettings(max_new_tokens=MOST), width=2)
    expected = {answer.key: answer for answer in run(BeamSettings(max_new_tokens=MOST), asked)}
    answers, waiting = {}, list(asked)
    while waiting or search.pending:
        if waiting:
            search.add(waiting.pop())
        answers.update({answer.key: answer for answer in search.step()})
    assert answers.keys() == expected.keys()
    for key, answer in answers.items():
        assert answer.hypotheses[0].tokens == expected[key].hypotheses[0].tokens
    assert search.step() == []


def test_times_obey_their_rules() -> None:
    ids = tiny_model().ids
    for answer in run(BeamSettings(4, max_new_tokens=20), requests(6)):
        assert isinstance(answer.key, int)
        if answer.key % 3 == 1:
            continue
        for each in answer.hypotheses:
            times = [token - ids.time for token in each.tokens if token >= ids.time]
            assert each.tokens[0] >= ids.time
            assert times[0] <= 50
            assert times == sorted(times)
            assert not set(each.tokens) & set(tiny_model().settings.suppress)


def test_a_prompt_that_fills_the_context_leaves_one_step() -> None:
    model = tiny_model()
    prompt = (*range(1, 445), 50258, 50259, 50359)
    assert len(prompt) == 447
    answer = run(BeamSettings(2), [SearchRequest(0, windows()[0], prompt)])[0]
    rules = ReferenceRules(model.ids, model.settings, timestamps=True)
    frames = np.array(windows()[0].frames)
    expected = beam_search(reference(), frames, list(prompt), rules, model.ids.eot, 2, 1.0, 224)
    assert {each.tokens for each in answer.hypotheses} == {tokens for tokens, *_ in expected}
    search = AttentionSearch(model.head, model.rules, BeamSettings())
    with pytest.raises(ValueError, match="1 to 447 tokens; this one has 448"):
        search.add(SearchRequest(0, windows()[0], (*prompt, 5)))
    with pytest.raises(ValueError, match="this one has 0"):
        search.add(SearchRequest(0, windows()[0], ()))


def test_settings() -> None:
    assert BeamSettings(5, 0.5).wanted == 2  # half to even
    assert BeamSettings(length_penalty=1.0).rank(-6.0, 7) == -3.0
    assert BeamSettings().rank(-6.0, 0) == -6.0
    for wrong in ({"beam": 0}, {"max_new_tokens": 0}, {"patience": 0.1}):
        with pytest.raises(ValueError, match="at least 1"):
            BeamSettings(**wrong)


class TableHead:
    """A decoder whose logits are a function of the last token: rows of a table. Row 0 may be no numbers."""

    eos, max_tokens = 3, 448

    def __init__(self, table: np.ndarray) -> None:
        self.table = mx.array(table)

    def start(self, encoded: list[int], prompts: list[tuple[int, ...]], beam: int) -> list[int]:
        return list(encoded)

    def step(self, tokens: mx.array, state: list[int]) -> tuple[mx.array, list[int]]:
        return mx.concatenate([self.table[row][tokens[at]] for at, row in enumerate(state)]), state

    def reorder(self, state: list[int], parents: mx.array) -> list[int]:
        return state

    def select(self, state: list[int], utterances: list[int]) -> list[int]:
        return [state[at] for at in utterances]

    def join(self, states: list[list[int]]) -> list[int]:
        return [each for state in states for each in state]


@pytest.mark.parametrize("beam", [1, 2])
def test_numbers_that_are_none_end_their_own_utterance_alone(beam: int) -> None:
    table = np.random.default_rng(0).normal(size=(2, 8, 8)).astype(np.float32)
    table[0, 5] = np.nan  # reached once 5 has been sampled
    table[0, 0, 5] = 9.0
    table[1, :, 3] += 2
    head: Any = TableHead(table)
    search = AttentionSearch(head, NoRules(8), BeamSettings(beam, max_new_tokens=6))
    broken, fine = search.run([SearchRequest(0, 0, (0,)), SearchRequest(1, 1, (0,))])
    alone = AttentionSearch(head, NoRules(8), BeamSettings(beam, max_new_tokens=6)).run(
        [SearchRequest(1, 1, (0,))]
    )[0]
    assert fine.hypotheses == alone.hypotheses
    assert len(fine.hypotheses) == beam
    if beam == 1:
        assert broken.hypotheses == ()


def test_an_end_counts_while_fewer_live_ones_than_the_beam_stand_above_it() -> None:
    settings = BeamSettings(2, patience=1.0, max_new_tokens=9)
    state = settings.start([9], [1])
    tokens = mx.array([[[7, 3, 5], [0, 1, 2]]])
    scores = mx.array([[[-0.5, -1.0, -2.0], [-1.0, -1.0, -1.0]]])
    state, parents, following = settings.advance(state, tokens, scores, 3)
    assert following.tolist() == [[7, 5]]
    assert parents.tolist() == [[0, 0]]
    # Two live ones above it: this end is lost; the other one is not.
    tokens, scores = mx.array([[[4, 6, 3], [3, 4, 5]]]), mx.array([[[-0.1, -0.2, -0.3], [-0.1, -5.0, -6.0]]])
    state, _, following = settings.advance(state, tokens, scores, 3)
    assert state.finished.tolist() == [1]
    assert following.tolist() == [[4, 6]]
    found = settings.collect(state, 0).hypotheses
    assert [each.tokens for each in found] == [(7, 4), ()]
    assert [each.ended for each in found] == [False, True]
