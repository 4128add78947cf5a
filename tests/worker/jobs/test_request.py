"""What the engine is asked is what the job's options say, by name."""

from typing import Any

import pytest

from spool.domain.options import Options
from worker.jobs.request import request_of


@pytest.mark.parametrize(
    ("record", "name", "value"),
    [
        ("search", "decoder", "beam"),
        ("search", "max_symbols", 2),
        ("search", "beta", 0.5),
        ("ask", "lm_weight", 0.7),
        ("ask", "alternatives", 3),
        ("ask", "translate_to", "de"),
        ("ask", "punctuation", False),
    ],
)
def test_an_option_reaches_the_engine_under_its_name(record: str, name: str, value: object) -> None:
    asked: dict[str, Any] = {"model": "m", name: value}
    request = request_of(Options(**asked))
    parts = {"search": request.search, "ask": request}
    assert getattr(parts[record], name) == value


def test_a_graph_is_searched_as_its_options_say() -> None:
    graph = {"name": "town", "graph_beam": 12.0, "unit_penalty": 0.5}
    asked: dict[str, Any] = {"model": "m", "decoder": "wfst", "graph": graph}
    options = Options(**asked)
    assert request_of(options).search.graph == options.graph


def test_phrases_continue_through_the_recording_if_the_job_says_so() -> None:
    assert request_of(Options(model="m", context="job"), phrases=("a",)).carries
    assert not request_of(Options(model="m")).carries
