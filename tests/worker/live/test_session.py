"""Live sessions of a cache-aware model: what they give together is what the whole recording gives."""

import itertools
from collections.abc import Sequence

import numpy as np
import pytest

from spool.errors import EngineError, InvalidRequest
from tests.golden.streaming.golden import GOLDEN, Samples, answers, audio, model
from worker.live import End, EndpointRules, Event, Final, LiveGroup, LiveOptions, LiveSession, Mark, Partial
from worker.models import SearchOptions, Tokenizer, load_model

pytestmark = pytest.mark.slow

CONTEXT = (70, 1)
EVERYWHERE = EndpointRules(silence=0.24, longest=2.0)
"""Endpoints at every turn: they must change no token."""


def options(beam: int | None = None, rules: EndpointRules | None = EVERYWHERE, **how: bool) -> LiveOptions:
    search = SearchOptions(head="rnnt", att_context=CONTEXT)
    if beam is not None:
        search = SearchOptions(decoder="beam", beam=beam, nbest=beam, head="rnnt", att_context=CONTEXT)
    return LiveOptions(search, rules, **how)


def run(group: LiveGroup, recordings: Sequence[Samples], size: int) -> list[list[Event]]:
    """Sessions side by side; the second is opened when the first has heard a second."""
    events: list[list[Event]] = [[] for _ in recordings]
    sessions: list[LiveSession] = []
    at = 0
    while not sessions or any(not session.has_ended for session in sessions):
        if len(sessions) < len(recordings) and at >= len(sessions) * 16_000:
            sessions.append(group.open())
        for index, session in enumerate(sessions):
            begin = at - index * 16_000
            block = recordings[index][max(begin, 0) : max(begin + size, 0)]
            if len(block):
                session.push(block)
            elif not session.stream.has_ended and begin >= len(recordings[index]):
                session.finish()
        while group.is_ready:
            for result in group.step():
                assert result.error is None
                events[sessions.index(result.session)] += result.events
        at += size
    return events


def finals(events: Sequence[Event]) -> list[Final]:
    return [event for event in events if isinstance(event, Final)]


def together(events: Sequence[Event]) -> tuple[list[int], list[int]]:
    return (
        [token for final in finals(events) for token in final.tokens],
        [time for final in finals(events) for time in final.times],
    )


def test_greedy_finals_together_are_the_whole() -> None:
    given = run(LiveGroup(model(), options()), [audio(1), audio(2)], 1600)
    for number, events in zip((1, 2), given, strict=True):
        key = f"greedy.{CONTEXT[1]}.{number}"
        assert together(events) == (answers()[f"{key}.tok"].tolist(), answers()[f"{key}.time"].tolist())
        assert isinstance(events[-1], End)
    assert len(finals(given[0])) > 1
    assert {final.reason for final in finals(given[0])[:-1]} <= {"silence", "length"}


def test_beam_finals_together_are_the_whole() -> None:
    given = run(LiveGroup(model(), options(8, keeps=True)), [audio(1), audio(2)], 4000)
    for number, events in zip((1, 2), given, strict=True):
        key = f"beam.{CONTEXT[1]}.{number}.k8"
        expected = [
            tuple(tokens[:count].tolist())
            for tokens, count in zip(answers()[f"{key}.tok"], answers()[f"{key}.len"], strict=True)
        ][: int(answers()[f"{key}.n"])]
        end = events[-1]
        assert isinstance(end, End)
        assert [each.tokens for each in end.nbest] == expected
        assert tuple(together(events)[0]) == expected[0]
        np.testing.assert_allclose(
            [each.score for each in end.nbest], answers()[f"{key}.score"][: len(expected)], atol=2e-3
        )


def test_ctc_finals_together_are_the_whole() -> None:
    search = SearchOptions(head="ctc", att_context=CONTEXT)
    [events] = run(LiveGroup(model(), LiveOptions(search, EVERYWHERE)), [audio(2)], 1600)
    assert together(events)[0] == answers()[f"ctc.{CONTEXT[1]}.2"].tolist()


def test_blocks_change_nothing_but_when_it_is_said() -> None:
    given = [run(LiveGroup(model(), options()), [audio(2)], size)[0] for size in (333, 16_000)]
    assert given[0] == given[1]


@pytest.mark.parametrize("beam", [None, 4])
def test_the_stable_part_of_a_partial_stays(beam: int | None) -> None:
    [events] = run(LiveGroup(model(), options(beam, None)), [audio(1)], 1280)
    partials = [event for event in events if isinstance(event, Partial)]
    [final] = finals(events)
    assert len(partials) > 3
    for partial in partials:
        assert partial.tokens[: partial.stable] == final.tokens[: partial.stable]
        assert partial.times[: partial.stable] == final.times[: partial.stable]
    assert any(partial.stable > 0 for partial in partials)
    assert final.reason == "end"


@pytest.mark.parametrize("beam", [None, 4])
def test_a_restart_ends_everything_that_was_found(beam: int | None) -> None:
    [events] = run(LiveGroup(model(), options(beam, restarts=True)), [audio(1)], 1600)
    given = finals(events)
    assert len(given) > 1
    ends = [final.end for final in given]
    assert ends == sorted(ends)
    for before, after in itertools.pairwise(given):
        assert before.times[-1] <= after.times[0]
    assert isinstance(events[-1], End)
    assert events[-1].frames == len(answers()[f"enc.{CONTEXT[1]}.1"])


def test_a_mark_is_an_event_and_no_text(monkeypatch: pytest.MonkeyPatch) -> None:
    tokens = answers()[f"greedy.{CONTEXT[1]}.2.tok"].tolist()
    times = answers()[f"greedy.{CONTEXT[1]}.2.time"].tolist()
    spoken = tokens[len(tokens) // 2]
    pieces = list(model().tokenizer.pieces)
    pieces[spoken] = "<EOU>"
    monkeypatch.setattr(model(), "tokenizer", Tokenizer(pieces))
    [events] = run(LiveGroup(model(), options(rules=EndpointRules())), [audio(2)], 1600)
    marks = [event for event in events if isinstance(event, Mark)]
    expected = [time for token, time in zip(tokens, times, strict=True) if token == spoken]
    assert [mark.time for mark in marks] == [round(time * 0.08, 3) for time in expected]
    assert together(events) == (tokens, times)
    assert [final.tokens[-1] for final in finals(events) if final.reason == "eou"] == [spoken] * len(
        [final for final in finals(events) if final.reason == "eou"]
    )
    assert any(final.reason == "eou" for final in finals(events))
    assert not any("EOU" in final.text for final in finals(events))


def test_a_session_without_audio_ends() -> None:
    group = LiveGroup(model(), options())
    session = group.open()
    session.finish()
    [result] = group.step()
    assert result.events == (End(0.0, 0),)
    assert not group.sessions
    assert not group.is_ready


def test_a_broken_session_ends_alone() -> None:
    group = LiveGroup(model(), options())
    good, broken = group.open(), group.open()
    good.push(audio(2))
    broken.push(np.full(16_000, np.nan, np.float32))
    good.finish()
    events: list[Event] = []
    errors: list[EngineError] = []
    while group.is_ready:
        for result in group.step():
            if result.session is good:
                events += result.events
            elif result.error is not None:
                errors.append(result.error)
    assert [error.code for error in errors] == [EngineError.code]
    assert together(events)[0] == answers()[f"greedy.{CONTEXT[1]}.2.tok"].tolist()


def test_what_cannot_be_heard_live_is_refused() -> None:
    with pytest.raises(InvalidRequest, match="cache-aware"):
        LiveGroup(load_model(str(GOLDEN.parent / "tdt")), LiveOptions())
    with pytest.raises(InvalidRequest, match="70,5"):
        LiveGroup(model(), LiveOptions(SearchOptions(att_context=(70, 5))))
    with pytest.raises(InvalidRequest, match="alignments best"):
        LiveGroup(model(), LiveOptions(SearchOptions(decoder="beam", head="ctc", alignments="all")))
    with pytest.raises(InvalidRequest, match="restarts at endpoints"):
        LiveOptions(restarts=True, keeps=True)
