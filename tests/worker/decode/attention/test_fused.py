"""Language models and phrases in an attention decoder's search, against one hypothesis at a time."""

from collections.abc import Callable

import mlx.core as mx
import numpy as np
import pytest

from tests.golden.whisper_reference import ReferenceRules, beam_search
from tests.worker.models.whisper.fixtures import reference, tiny_model, windows
from tests.worker.models.whisper.tiny import tone
from worker.decode import (
    Arpa,
    AttentionSearch,
    BeamSettings,
    BoundGraph,
    Entry,
    FusedTokens,
    Fusion,
    Graph,
    KeptBeam,
    SearchRequest,
    Source,
    fuse_tokens,
    language_model,
    phrase_tree,
    read_utterances,
)
from worker.decode.attention import reading
from worker.engine import check_decoding
from worker.models import DecodeRequest, SearchOptions, WhisperOptions

pytestmark = pytest.mark.slow

MOST = 8
TOLERANCE = 3e-3  # float32 rounding of eight scores with gains, summed in another order


def said(graph: Graph, tokens: list[int]) -> tuple[np.ndarray, float]:
    """What each token adds behind `tokens`, and what an end does: a state at a time."""
    state, debt, chain = graph.after(tokens), 0.0, []
    ends = float(graph.ends[state])
    while graph.fallback[state] >= 0:
        chain.append((state, debt))
        debt += float(graph.penalty[state])
        state = int(graph.fallback[state])
    costs = graph.root()[0].astype(np.float64) + debt
    for state, owed in reversed(chain):
        arcs = slice(int(graph.first[state]), int(graph.first[state]) + int(graph.count[state]))
        costs[graph.labels[arcs]] = graph.weights[arcs] + owed
    return costs, ends


Entries = dict[tuple[int, ...], Entry]


def graphs(liked: list[int]) -> tuple[Graph, Graph]:
    """Phrases of `liked` tokens, and a model that likes them too."""
    size = tiny_model().ids.eot
    tree = phrase_tree([liked[:2], liked[1:4], [*liked[2:5], 7]], size)
    first: Entries = {(token,): Entry(-3.0 - 0.1 * at, -0.4, 1) for at, token in enumerate(liked)}
    pairs: Entries = {(one, other): Entry(-0.5, 0.0, 1) for one, other in zip(liked, liked[2:], strict=False)}
    marks: Entries = {(-1,): Entry(0.0, -0.3, 1), (-2,): Entry(-2.0, 0.0, 1), (-3,): Entry(-4.0, 0.0, 1)}
    return tree, language_model(Arpa(first | pairs | marks, 2), size)


Rules = Callable[[np.ndarray, list[int]], np.ndarray]


def with_gains(rules: Rules, sources: list[tuple[Graph, float]]) -> Rules:
    ids = tiny_model().ids

    def best(logits: np.ndarray, sampled: list[int]) -> np.ndarray:
        scores = rules(logits, sampled).astype(np.float64)
        for graph, weight in sources:
            costs, ends = said(graph, [token for token in sampled if token < ids.eot])
            scores[: ids.eot] += weight * costs
            scores[ids.eot] += weight * ends
        return scores.astype(np.float32)

    return best


def asked() -> list[SearchRequest]:
    """Unlike prompts, with and without times; two questions of each utterance share its fusion."""
    ids, requests = tiny_model().ids, []
    for index in range(6):
        prompt = ids.prompt("en", timestamps=index % 2 == 0, previous=range(100, 100 + index))
        options = WhisperOptions(index % 2 == 0)
        requests.append(SearchRequest(index, windows()[index // 2], tuple(prompt), options, None, index // 2))
    return requests


def fusion(liked: list[int]) -> tuple[FusedTokens, list[list[tuple[Graph, float]]]]:
    """Utterance 0 has phrases, 1 a language model, 2 both; and the same as a list."""
    tree, model = graphs(liked)
    weights = [(3.0, 0.0), (0.0, 0.5), (2.0, 0.3)]
    sources = [
        Source(BoundGraph([graph], [0] * 3), mx.array([row[at] for row in weights]), sentence_end=at == 1)
        for at, graph in enumerate((tree, model))
    ]
    ids = tiny_model().ids
    fused = FusedTokens(Fusion(sources), mx.ones(ids.eot, mx.bool_), (ids.eot,))
    return fused, [[(tree, boost), (model, alpha)] for boost, alpha in weights]


@pytest.mark.parametrize("beam", [1, 3])
def test_every_list_is_openais_with_what_is_added(beam: int) -> None:
    model, settings = tiny_model(), BeamSettings(beam, max_new_tokens=MOST)
    plain = AttentionSearch(model.head, model.rules, settings).run(asked())
    rivals = [token for answer in plain for token in answer.hypotheses[-1].tokens if token < model.ids.eot]
    fused, sources = fusion([*dict.fromkeys(rivals)][:6])
    found = AttentionSearch(model.head, model.rules, settings, 32, fused).run(asked())
    for request, answer in zip(asked(), found, strict=True):
        rules = ReferenceRules(model.ids, model.settings, request.options.timestamps)
        frames = np.array(request.encoded.frames)
        expected = beam_search(
            reference(),
            frames,
            list(request.prompt),
            with_gains(rules, sources[request.fused]),
            model.ids.eot,
            beam,
            1.0,
            MOST,
        )
        assert {each.tokens for each in answer.hypotheses} == {tokens for tokens, *_ in expected}
        scores = {tokens: score for tokens, score, _ in expected}
        for each in answer.hypotheses:
            assert abs(each.score - scores[each.tokens]) < TOLERANCE
    pairs = zip(plain, found, strict=True)
    assert any(one.hypotheses[0].tokens != other.hypotheses[0].tokens for one, other in pairs)
    # Rows that enter and leave change nothing.
    for answer in AttentionSearch(model.head, model.rules, settings, 2, fused).run(asked()[::-1]):
        own = found[int(str(answer.key))].hypotheses
        assert [each.tokens for each in answer.hypotheses] == [each.tokens for each in own]


def test_a_beam_that_keeps_its_ended_is_fused_too() -> None:
    model = tiny_model()
    settings = KeptBeam((model.ids.eot,), 2, max_new_tokens=MOST)
    fused, _ = fusion([300, 301, 302, 303, 304])
    requests = asked()[:2]
    together = AttentionSearch(model.head, model.rules, settings, 32, fused).run(requests)
    for request, answer in zip(requests, together, strict=True):
        (alone,) = AttentionSearch(model.head, model.rules, settings, 32, fused).run([request])
        assert [each.tokens for each in alone.hypotheses] == [each.tokens for each in answer.hypotheses]


def test_a_phrase_is_heard_by_the_utterance_that_asks_for_it_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    model = tiny_model()
    monkeypatch.setattr(reading, "beams_of", lambda *_: BeamSettings(2, max_new_tokens=8))
    plain = DecodeRequest(language="en", timestamps="off", single=True)
    samples = [tone(3.0, 1), tone(5.0, 2)]
    phrase = plain.model_copy(update={"phrases": ("x300 x301 nobody says",), "boost": 40.0})
    options = SearchOptions(decoder="beam", beam=2)
    check_decoding(model, options, phrase)
    before = read_utterances(model, samples, options, [plain, plain])
    after = read_utterances(model, samples, options, [plain, phrase])
    assert after[0].hypotheses[0].tokens == before[0].hypotheses[0].tokens
    assert after[1].hypotheses[0].tokens != before[1].hypotheses[0].tokens
    assert " x300" in model.tokenizer.decode(after[1].hypotheses[0].tokens)


def test_nothing_is_fused_where_nothing_is_asked_for() -> None:
    assert fuse_tokens(tiny_model(), SearchOptions(), [DecodeRequest(), DecodeRequest()]) is None


def test_words_are_spelled_as_they_stand_in_a_text() -> None:
    tokenizer = tiny_model().tokenizer
    assert tokenizer.decode(tokenizer.encode_words("fog")) == " fog"
    assert tokenizer.decode(tokenizer.encode_words("霧")) == "霧"
