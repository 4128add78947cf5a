"""What a window's answer passed over is asked again, and comes where it was spoken."""

from collections.abc import Sequence

import mlx.core as mx
import numpy as np
import pytest

from tests.worker.models.whisper.fixtures import tiny_model
from tests.worker.models.whisper.tiny import tone
from worker.decode import BeamSettings, WindowText, combine, read_utterances
from worker.decode.attention import reading
from worker.decode.attention.reading import join_windows
from worker.models import (
    DecodeRequest,
    EncodedWindow,
    HeardWindow,
    Languages,
    PromptAnswer,
    Question,
    SearchOptions,
    TokenTimes,
    Unread,
    WhisperModel,
    Window,
    WindowOutcome,
)

RATE = 16_000


def test_neighbours_are_asked_as_one_window() -> None:
    rest, early = Window(80, 100, 1), Window(10, 20, 1)
    assert join_windows([], [rest]) == ((), (rest,))
    assert join_windows([early], []) == ((early,), ())
    assert join_windows([early], [rest]) == ((early,), (rest,))
    assert join_windows([early, Window(70, 80, 1)], [rest]) == ((early,), (Window(70, 100, 1),))
    assert join_windows([Window(85, 100, 1)], [rest]) == ((), (rest,))


def test_hypotheses_of_several_windows_are_put_together(monkeypatch: pytest.MonkeyPatch) -> None:
    # Given a model that reads 4 s in two halves
    middle = 2 * RATE

    def judge(
        self: WhisperModel,
        window: Window,
        readings: Sequence[PromptAnswer],
        question: Question,
        samples: np.ndarray,
    ) -> WindowOutcome:
        if window.stop - window.start > middle:
            return WindowOutcome("divided", again=(Window(0, middle, 1), Window(middle, 2 * middle, 1)))
        return WindowOutcome("kept", readings[0].tokens)

    monkeypatch.setattr(WhisperModel, "judge", judge)
    monkeypatch.setattr(WhisperModel, "unread", lambda *_: Unread())
    monkeypatch.setattr(reading, "beams_of", lambda *_: BeamSettings(3, max_new_tokens=6))
    model, samples = tiny_model(), tone(4, 4)
    options = SearchOptions(decoder="beam", beam=3, nbest=3)
    requests = [DecodeRequest(language="en")]
    # When all of it is read, and each half by itself
    (answer,) = read_utterances(model, [samples], options, requests)
    first, second = (
        read_utterances(model, [half], options, requests)[0].hypotheses
        for half in (samples[:middle], samples[middle:])
    )
    # Then its hypotheses are one of each, the answer of both first
    ways = combine([[WindowText(each.tokens, each.score) for each in half] for half in (first, second)], 3)
    assert len(answer.hypotheses) == 3
    assert [each.tokens for each in answer.hypotheses] == [
        tuple(token for text in way for token in text.tokens) for way in ways
    ]
    assert [each.score for each in answer.hypotheses] == pytest.approx(
        [sum(text.score for text in way) for way in ways], abs=1e-3
    )


def test_no_encoding_is_held_when_the_next_round_is_encoded(monkeypatch: pytest.MonkeyPatch) -> None:
    middle, held, encode = 2 * RATE, [], WhisperModel.encode

    def judge(
        _: WhisperModel, window: Window, readings: Sequence[PromptAnswer], *__: object
    ) -> WindowOutcome:
        if window.round == 0:
            return WindowOutcome("divided", again=(Window(0, middle, 1), Window(middle, 2 * middle, 1)))
        return WindowOutcome("kept", readings[0].tokens)

    def encode_and_count(self: WhisperModel, windows: Sequence[np.ndarray]) -> list[EncodedWindow]:
        held.append(mx.get_active_memory())
        return encode(self, windows)

    monkeypatch.setattr(WhisperModel, "judge", judge)
    monkeypatch.setattr(WhisperModel, "encode", encode_and_count)
    monkeypatch.setattr(WhisperModel, "unread", lambda *_: Unread())
    monkeypatch.setattr(reading, "beams_of", lambda *_: BeamSettings(max_new_tokens=6))
    model = tiny_model()
    read_utterances(model, [tone(4, 4)] * 3, SearchOptions(), [DecodeRequest(language="en")] * 3)
    assert len(held) == 2
    assert held[1] - held[0] < 1500 * model.head.bytes_a_token  # of one of the three windows


def test_the_language_is_the_one_whose_answer_is_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    def judge(
        self: WhisperModel,
        window: Window,
        readings: Sequence[PromptAnswer],
        question: Question,
        samples: np.ndarray,
    ) -> WindowOutcome:
        assert [each.prompt.language for each in readings] == ["de", "en"][-len(readings) :]
        return WindowOutcome("kept", readings[-1].tokens, reading=len(readings) - 1)

    # Given a model that thinks German a little likelier, and answers that speak for English
    monkeypatch.setattr(WhisperModel, "judge", judge)
    monkeypatch.setattr(WhisperModel, "unread", lambda *_: Unread())
    monkeypatch.setattr(reading, "beams_of", lambda *_: BeamSettings(1, max_new_tokens=6))
    doubtful = Languages({"de": 0.7, "en": 0.2, "fr": 0.1})
    monkeypatch.setattr(WhisperModel, "detect_languages", lambda _, encoded: [doubtful] * len(encoded))
    model, samples, options = tiny_model(), [tone(4, 4), tone(3, 1)], SearchOptions(decoder="greedy")
    # When utterances are read with the language left open, together and alone, and in English
    together = read_utterances(model, samples, options, [DecodeRequest()] * 2)
    alone = [read_utterances(model, [row], options, [DecodeRequest()])[0] for row in samples]
    english = [DecodeRequest(language="en", audio_context="full")] * 2
    given = read_utterances(model, samples, options, english)
    # Then the words and the language are English, which takes the first one's share
    for answer, by_itself, expected in zip(together, alone, given, strict=True):
        assert answer.hypotheses[0].tokens == expected.hypotheses[0].tokens
        assert answer.hypotheses[0].tokens == by_itself.hypotheses[0].tokens
        assert answer.language == "en"
        assert answer.languages == (("en", 0.7), ("de", 0.2), ("fr", 0.1))


@pytest.mark.parametrize("reason", ["none", "doubt", "loop", "unread", "stretched"])
def test_a_window_is_read_with_times_where_the_first_answer_gives_a_reason(
    monkeypatch: pytest.MonkeyPatch, reason: str
) -> None:
    # Given a model in doubt between two languages, of which it keeps English
    asked: list[list[tuple[str | None, bool]]] = []
    encoded: list[tuple[int, Sequence[bool] | None]] = []

    def judge(
        self: WhisperModel,
        window: Window,
        readings: Sequence[PromptAnswer],
        question: Question,
        samples: np.ndarray,
    ) -> WindowOutcome:
        asked.append([(each.prompt.language, each.prompt.timestamps) for each in readings])
        if reason == "loop" and len(readings) == 2:
            return WindowOutcome("divided", again=(Window(0, 2 * RATE, 1), Window(2 * RATE, 4 * RATE, 1)))
        place = min(1, len(readings) - 1)
        text = tuple(token for token in readings[place].tokens if self.is_text(token))
        return WindowOutcome("kept", text, reading=place, doubtful=reason == "doubt")

    def unread(self: WhisperModel, heard: HeardWindow, times: TokenTimes) -> Unread:
        windows = (Window(0, RATE, 4),) if reason == "unread" and len(asked) == 1 else ()
        return Unread(windows, stretched=reason == "stretched")

    def encode(
        self: WhisperModel, windows: Sequence[np.ndarray], full: Sequence[bool] | None = None
    ) -> object:
        encoded.append((len(windows), full))
        return real_encode(self, windows, full)

    real_encode = WhisperModel.encode
    monkeypatch.setattr(WhisperModel, "judge", judge)
    monkeypatch.setattr(WhisperModel, "unread", unread)
    monkeypatch.setattr(WhisperModel, "encode", encode)
    monkeypatch.setattr(reading, "beams_of", lambda *_: BeamSettings(1, max_new_tokens=6))
    doubtful = Languages({"de": 0.7, "en": 0.3})
    monkeypatch.setattr(WhisperModel, "detect_languages", lambda _, encoded: [doubtful] * len(encoded))
    model = tiny_model()
    # When a window is read
    (answer,) = read_utterances(model, [tone(4, 4)], SearchOptions(decoder="greedy"), [DecodeRequest()])
    # Then it is encoded once, and asked with times in the language that is kept, or in both where none is;
    # what it passed over is asked behind that
    plain, timed = [("de", False), ("en", False)], [("en", True)]
    later = {
        "none": [],
        "doubt": [plain + timed],
        "loop": [[*plain, ("de", True), *timed]],
        "unread": [plain + timed, [("en", False)]],
        "stretched": [plain + timed],
    }
    assert asked == [plain, *later[reason]]
    # The full window, until the language is known
    assert encoded == ([(1, [True]), (1, None)] if reason == "unread" else [(1, [True])])
    assert answer.language == "en"
    passed = model.frames_in(RATE) if reason == "unread" else 0
    assert answer.frames == model.frames_in(4 * RATE, full=True) + passed


@pytest.mark.long
def test_a_part_that_was_passed_over_is_read_once(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[Window] = []

    def unread(
        self: WhisperModel,
        heard: HeardWindow,
        times: TokenTimes,
    ) -> Unread:
        assert len(heard.samples) == heard.window.stop - heard.window.start
        asked.append(heard.window)
        return Unread((Window(3 * RATE, 5 * RATE, 1),)) if heard.window.round == 0 else Unread()

    def keep(
        self: WhisperModel,
        window: Window,
        readings: Sequence[PromptAnswer],
        question: Question,
        samples: np.ndarray,
    ) -> WindowOutcome:
        text = tuple(token for token in readings[0].tokens if self.is_text(token))
        return WindowOutcome("kept", text[:20])

    monkeypatch.setattr(WhisperModel, "judge", keep)  # random weights answer in loops
    options, requests = SearchOptions(decoder="greedy"), [DecodeRequest(language="en")]
    model, samples = tiny_model(), tone(7.3, 4)
    monkeypatch.setattr(WhisperModel, "unread", lambda *_: Unread())
    (plain,) = read_utterances(model, [samples], options, requests)
    monkeypatch.setattr(WhisperModel, "unread", unread)
    (answer,) = read_utterances(model, [samples], options, requests)
    assert Window(3 * RATE, 5 * RATE, 1) in asked
    assert answer.frames == plain.frames + model.frames_in(2 * RATE)
    best = answer.hypotheses[0]
    assert len(best.tokens) > len(plain.hypotheses[0].tokens)
    monkeypatch.setattr(WhisperModel, "unread", lambda *_: Unread())
    (inner,) = read_utterances(model, [samples[3 * RATE : 5 * RATE]], options, requests)
    part = inner.hypotheses[0].tokens
    assert len(best.tokens) == len(plain.hypotheses[0].tokens) + len(part)
    assert any(best.tokens[at : at + len(part)] == part for at in range(1, len(best.tokens)))
    assert len(best.tokens) == len(best.times) == len(best.durations) == len(best.confidences)
