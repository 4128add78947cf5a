"""What a request may ask of the search, and the one form that lists of phrases have."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from spool.domain import MOST_PHRASES, AskedOptions, Boost, JobOptions, phrase_list
from spool.domain.declaration import in_flags
from spool.domain.options import drop_inapplicable

MODEL = "demo-tdt"


def refusal(**options: Any) -> tuple[str, str]:
    """Where and why the options are refused."""
    with pytest.raises(ValidationError) as refused:
        AskedOptions.model_validate({"model": MODEL, **options})
    fault = refused.value.errors()[0]
    return ".".join(map(str, fault["loc"])), fault["msg"]


def test_the_same_phrases_are_the_same_list() -> None:
    one = phrase_list(["lamp room", "  fog\u00a0 horn ", "fog horn", "", " "])
    assert one.phrases == ("fog horn", "lamp room")
    assert one == phrase_list(["fog horn", "lamp room"])
    assert one.sha256 != phrase_list(["fog", "horn lamp room"]).sha256
    assert one.sha256 != phrase_list(["Fog horn", "lamp room"]).sha256


@given(st.lists(st.text(max_size=20)), st.randoms(use_true_random=False))
def test_the_order_of_phrases_says_nothing(texts: list[str], chance: Any) -> None:
    texts = [text for text in texts if text.isprintable()]
    shuffled = texts * 2
    chance.shuffle(shuffled)
    assert phrase_list(texts) == phrase_list(shuffled)


def test_a_job_keeps_the_digest_of_its_phrases() -> None:
    asked = AskedOptions.model_validate({"model": MODEL, "boost": {"phrases": ["b", "a"], "weight": 2}})
    assert asked.boost is not None
    kept = asked.job_options()
    assert kept.boost is not None
    assert (kept.boost.count, kept.boost.weight) == (2, 2.0)
    assert kept.boost.sha256 == asked.boost.phrase_list.sha256 == phrase_list(["a", "b"]).sha256
    assert JobOptions.model_validate(kept.model_dump(mode="json")) == kept


def test_no_phrase_at_all_is_no_boost() -> None:
    asked = AskedOptions.model_validate({"model": MODEL, "boost": {"phrases": ["", "  "], "weight": 7.0}})
    assert asked.job_options() == AskedOptions(model=MODEL).job_options() == JobOptions(model=MODEL)


def test_an_option_with_its_default_is_left_out_of_a_fingerprint() -> None:
    assert JobOptions(model=MODEL).document() == {"model": MODEL}
    options = JobOptions(model=MODEL, decoder="beam", nbest=2, language_model="town")
    assert options.document() == {"model": MODEL, "decoder": "beam", "nbest": 2, "language_model": "town"}


def test_a_job_without_a_model_is_refused() -> None:
    with pytest.raises(ValidationError, match="model"):
        JobOptions.model_validate({})


@pytest.mark.parametrize(
    ("options", "where", "why"),
    [
        ({"nbest": 2}, "nbest", "does not apply to greedy"),
        ({"beam": 8}, "beam", "does not apply to greedy"),
        ({"decoder": "beam", "head": "tdt", "alignments": "all"}, "alignments", "needs `head` ctc"),
        ({"decoder": "beam", "nbest": 5}, "nbest", "`beam`, which is 4"),
        ({"decoder": "beam", "beam": 32, "nbest": 33}, "nbest", "less than or equal to 32"),
        ({"alternatives": 2}, "alternatives", "needs `decoder` beam; it does not apply to greedy"),
        ({"lattice": 0.0}, "lattice", "needs `decoder` beam or wfst"),
        ({"decoder": "beam", "alternatives": 21}, "alternatives", "less than or equal to 20"),
        ({"decoder": "beam", "lattice": -1.0}, "lattice", "greater than or equal to 0"),
        ({"decoder": "beam", "lattice": float("inf")}, "lattice", "finite"),
        ({"lm_weight": 0.5}, "lm_weight", "needs `language_model`, which is not set"),
        ({"lm_blanks": True}, "lm_blanks", "needs `language_model`"),
        ({"witness": True, "task": "translate"}, "witness", "cannot be combined with `task`"),
        ({"drop_unsupported": True}, "drop_unsupported", "needs `witness`, which is not set"),
        ({"reverse_weight": 0.3}, "reverse_weight", "needs `decoder` rescore"),
        ({"decoder": "beam", "transducer_weight": 0.3}, "transducer_weight", "needs `decoder` rescore"),
        ({"decoder": "beam", "attention_weight": 0.3}, "attention_weight", "needs `decoder` rescore"),
        ({"decoder": "rescore", "search_ctc_weight": 1.0}, "search_ctc_weight", "less than 1"),
        ({"decoder": "attention", "ctc_weight": 0.3}, "ctc_weight", "needs `decoder` beam or rescore"),
        ({"alignments": "all"}, "alignments", "needs `decoder` beam"),
        (
            {"rescore": {"model": "w"}, "decoder": "greedy"},
            "rescore",
            "needs `decoder` beam, rescore, attention or wfst",
        ),
        ({"decoder": "beam", "rescore": {"model": "w", "weight": -1}}, "rescore.weight", "greater than"),
        ({"decoder": "wfst"}, "graph", "is required with `decoder` wfst"),
        ({"decoder": "beam", "graph": {"name": "g"}}, "graph", "needs `decoder` rescore or wfst"),
        ({"decoder": "wfst", "graph": {"name": "g", "beam": 4}}, "graph.beam", "not permitted"),
        ({"decoder": "wfst", "graph": {"name": "g", "max_active": 0}}, "graph.max_active", "greater than"),
        ({"decoder": "wfst", "graph": {"name": "g"}, "alternatives": 2}, "alternatives", "not apply to wfst"),
        (
            {"decoder": "wfst", "graph": {"name": "g"}, "boost": {"phrases": ["a"]}},
            *("graph", "cannot be combined with `boost`"),
        ),
        ({"decoder": "rescore", "reverse_weight": 1.5}, "reverse_weight", "less than or equal to 1"),
        ({"language_model": "town", "lm_weight": float("nan")}, "lm_weight", "finite"),
        ({"language_model": "town", "lm_weight": -0.1}, "lm_weight", "greater than or equal to 0"),
        ({"language_model": ""}, "language_model", "at least 1 character"),
        ({"context": "job"}, "context", "needs `language_model` or `boost`"),
        ({"decoder": "beam", "pruning": "early"}, "pruning", "needs `language_model` or `boost`"),
        ({"pruning": "early", "boost": {"phrases": ["a"]}}, "pruning", "needs `decoder` beam"),
        ({"language_model": "town", "lm_blanks": True}, "lm_blanks", "does not apply to greedy"),
        ({"boost": {"phrases": "abc"}}, "boost.phrases", "valid tuple"),
        ({"boost": {"phrases": ["a", "x" * 201]}}, "boost.phrases.1", "at most 200 characters"),
        ({"boost": {"phrases": ["a\x07"]}}, "boost.phrases.0", "control characters"),
        ({"boost": {"phrases": ["\ud800"]}}, "boost.phrases.0", "unicode"),
        ({"boost": {"phrases": [["a"]]}}, "boost.phrases.0", "valid string"),
        ({"boost": {"phrases": ["a"] * (MOST_PHRASES + 1)}}, "boost.phrases", "at most 10000 items"),
        ({"boost": {"phrases": ["a"], "weight": 0}}, "boost.weight", "greater than 0"),
        ({"boost": {"phrases": ["a"], "weight": float("inf")}}, "boost.weight", "finite"),
        ({"boost": {"count": 1, "sha256": "0" * 64, "weight": 1.0}}, "boost.phrases", "required"),
        ({"boost": {"weight": 2.0}}, "boost.phrases", "required"),
        ({"boost": {"glossary": "names@1"}}, "boost.phrases", "required"),
    ],
)
def test_what_contradicts_itself_is_refused_by_its_field(
    options: dict[str, Any], where: str, why: str
) -> None:
    place, sentence = refusal(**options)
    assert place == where
    assert why in sentence


def test_ten_thousand_phrases_are_taken() -> None:
    phrases = tuple(f"{number:05} {'x' * 194}" for number in range(MOST_PHRASES))
    assert Boost(phrases=phrases).kept.count == MOST_PHRASES


def test_a_graph_must_be_known() -> None:
    asked = {"model": "m", "decoder": "wfst", "graph": {"name": "town", "graph_beam": 12.0}}
    options = AskedOptions.model_validate(asked, context={"graphs": ["city", "town"]})
    assert options.job_options().document()["graph"] == {"name": "town", "graph_beam": 12.0}
    with pytest.raises(ValidationError, match="there is no such graph; available: city"):
        AskedOptions.model_validate(asked, context={"graphs": ["city"]})


@pytest.mark.parametrize(
    ("changes", "left"),
    [
        ({"decoder": "greedy"}, {"decoder", "head"}),
        ({"decoder": "rescore"}, {"decoder", "head", "beam", "nbest", "beta"}),
        ({"head": "rnnt"}, {"decoder", "head", "beam", "nbest"}),
        ({"beam": "many"}, {"decoder", "head", "beam", "nbest", "beta", "alignments"}),
        ({}, {"decoder", "head", "beam", "nbest", "beta", "alignments"}),
    ],
)
def test_a_change_drops_what_no_longer_applies(changes: dict[str, Any], left: set[str]) -> None:
    kept = {"decoder": "beam", "head": "ctc", "beam": 8, "nbest": 2, "beta": 1.0, "alignments": "all"}
    assert drop_inapplicable(kept, changes).keys() == left


def test_what_a_change_asks_for_is_never_dropped() -> None:
    assert drop_inapplicable({"language_model": "town", "lm_weight": 0.5}, {"language_model": None}) == {
        "language_model": "town"
    }
    assert refusal(**drop_inapplicable({}, {"beam": 8}), beam=8)[0] == "beam"


@pytest.mark.parametrize(
    ("sentence", "read"),
    [
        ("options.nbest: must not exceed `beam`.", "--nbest: must not exceed --beam."),
        ("options.rescore: needs `decoder` beam.", "--rescore-model: needs --decoder beam."),
        ("options.rescore.weight: is too large.", "--rescore-weight: is too large."),
        ("options.boost.phrases.1: is too long.", "--boost: is too long."),
        ("name: is too long.", "name: is too long."),
    ],
)
def test_a_refusal_names_flags(sentence: str, read: str) -> None:
    assert in_flags(sentence, AskedOptions) == read
