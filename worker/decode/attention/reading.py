"""Utterances through an attention decoder: windows, the questions put to each, and what is asked again.

Every round encodes its windows once and searches all their prompts together; the family judges the answers.
Windows of one utterance change nothing in another's. Knows no family and no engine.
"""

import zlib
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from spool.domain.transcript import Word
from worker.decode.attention.beam import BeamSettings, Found
from worker.decode.attention.loop import AttentionSearch, SearchRequest
from worker.decode.result import Answer
from worker.decode.types import DecodeRequest, Hypothesis, SearchOptions
from worker.decode.words import CONFIDENCE_DIGITS, DIGITS
from worker.models.base import PreparedRequest
from worker.models.base_attention import (
    SAMPLE_RATE,
    AttentionModel,
    Question,
    Reading,
    TokenTimes,
    Window,
)

SHORTEST_SAMPLES = 400  # one frame of features; nothing is heard in less
Samples = NDArray[np.float32]


@dataclass(frozen=True, slots=True)
class _Kept:
    """What was heard in one window."""

    window: Window
    tokens: tuple[int, ...]
    score: float
    times: tuple[int, ...]
    durations: tuple[int, ...]
    confidences: tuple[float, ...]
    words: tuple[Word, ...]
    others: tuple[Found, ...] = ()


@dataclass(slots=True)
class _Utterance:
    """One utterance on its way. `broken`: its numbers were none."""

    samples: Samples
    request: PreparedRequest
    language: str | None = None
    windows: int = 0
    kept: list[_Kept] = field(default_factory=list)
    broken: bool = False


@dataclass(frozen=True, slots=True)
class _Asked:
    """A window of a round, what the encoder gave for it, and the answers to its prompts, best first."""

    utterance: _Utterance
    window: Window
    samples: Samples
    encoded: Any
    question: Question
    answers: tuple[tuple[Found, ...], ...]


def compression_ratio(text: str) -> float:
    """How much zlib makes of a text's UTF-8; loops compress well. 0 for no text."""
    raw = text.encode()
    return len(raw) / len(zlib.compress(raw)) if raw else 0.0


def read_utterances(
    model: AttentionModel,
    samples: Sequence[Samples],
    options: SearchOptions,
    requests: Sequence[DecodeRequest],
) -> list[Answer]:
    """The answer to each utterance, [N] float32 at 16 kHz.

    An utterance's tokens are text alone, unless its request is for a single window. Raises InvalidRequest
    where the model cannot do what is asked, AudioTooLong where an utterance is longer than a window.
    """
    settings = _settings(options)
    utterances = [
        _Utterance(row, model.prepare(request.speech)) for row, request in zip(samples, requests, strict=True)
    ]
    waiting = [(each, Window(0, len(each.samples))) for each in utterances]
    while waiting:
        again: list[tuple[_Utterance, Window]] = []
        heard: list[tuple[_Asked, tuple[int, ...], Found]] = []
        for asked in _ask(model, waiting, settings):
            if not all(asked.answers):
                asked.utterance.broken = True
                continue
            tokens, best, windows = _judged(model, asked)
            again += [(asked.utterance, window) for window in windows]
            if best is not None:
                heard.append((asked, tokens, best))
        _keep(model, heard, options.nbest)
        waiting = again
    return [_answer(model, each, options.nbest) for each in utterances]


def _settings(options: SearchOptions) -> BeamSettings:
    if options.decoder == "greedy":
        return BeamSettings()
    return BeamSettings(options.beam, options.patience, options.length_penalty)


def _ask(
    model: AttentionModel, waiting: Sequence[tuple[_Utterance, Window]], settings: BeamSettings
) -> list[_Asked]:
    """One round: every window encoded once and asked all its prompts."""
    waiting = [(each, window) for each, window in waiting if window.stop - window.start >= SHORTEST_SAMPLES]
    if not waiting:
        return []
    pieces = [each.samples[window.start : window.stop] for each, window in waiting]
    encoded = model.encode(pieces)
    questions = model.ask(
        encoded, [each.request for each, _ in waiting], [each.language for each, _ in waiting]
    )
    requests = [
        SearchRequest((row, place), encoded[row], prompt.tokens, prompt.options)
        for row, question in enumerate(questions)
        for place, prompt in enumerate(question.prompts)
    ]
    search = AttentionSearch(model.heads["attention"], model.rules, settings)
    hypotheses = {answer.key: answer.hypotheses for answer in search.run(requests)}
    asked = []
    for row, ((each, window), question) in enumerate(zip(waiting, questions, strict=True)):
        each.language = question.language
        each.windows += 1
        answers = tuple(hypotheses[row, place] for place in range(len(question.prompts)))
        asked.append(_Asked(each, window, pieces[row], encoded[row], question, answers))
    return asked


def _judged(model: AttentionModel, asked: _Asked) -> tuple[tuple[int, ...], Found | None, tuple[Window, ...]]:
    """The tokens that are kept of a window, the hypothesis that they come from, and what is asked again."""
    bests = [answers[0] for answers in asked.answers]
    if asked.utterance.request.options.single:
        return bests[0].tokens, bests[0], ()
    readings = []
    for prompt, best in zip(asked.question.prompts, bests, strict=True):
        text = model.tokenizer.decode([token for token in best.tokens if model.is_text(token)])
        readings.append(
            Reading(prompt.timestamps, best.tokens, best.ended, len(text.split()), compression_ratio(text))
        )
    verdict = model.judge(asked.window, readings, asked.question, asked.samples)
    if not verdict.kept:
        return (), None, verdict.again
    chosen = next(best for best in bests if best.tokens[: len(verdict.kept)] == verdict.kept)
    return verdict.kept, chosen, verdict.again


def _keep(model: AttentionModel, heard: Sequence[tuple[_Asked, tuple[int, ...], Found]], nbest: int) -> None:
    """Find out when the tokens were spoken, and leave them with their utterances."""
    texts = [tuple(token for token in tokens if model.is_text(token)) for _, tokens, _ in heard]
    times = model.heads["attention"].align(
        [asked.encoded for asked, *_ in heard], texts, [asked.question.language for asked, *_ in heard]
    )
    for (asked, tokens, best), text, when in zip(heard, texts, times, strict=True):
        utterance, window = asked.utterance, asked.window
        when = when or _even_times(len(text), window.seconds)
        words = model.words(text, when, asked.question.language) if text else []
        single = utterance.request.options.single
        starts, lengths, shares = _columns(model, tokens if single else text, when, window)
        others = next(answers for answers in asked.answers if answers[0] is best)[1:] if nbest > 1 else ()
        kept = _Kept(
            window,
            tokens if single else text,
            best.score,
            starts,
            lengths,
            shares,
            tuple(_moved(word, window, len(utterance.samples)) for word in words),
            others,
        )
        utterance.kept.append(kept)


def _even_times(tokens: int, seconds: float) -> TokenTimes:
    """Where nothing can be told of times: the tokens side by side."""
    return TokenTimes(np.linspace(0, seconds, tokens + 1, dtype=np.float32), np.zeros(tokens, np.float32))


def _columns(
    model: AttentionModel, tokens: Sequence[int], when: TokenTimes, window: Window
) -> tuple[tuple[int, ...], tuple[int, ...], tuple[float, ...]]:
    """Frames, durations and probabilities of tokens; what is no text lies where the next text does."""
    frame = model.info.frame_seconds
    begin = window.start / SAMPLE_RATE
    frames = [round((begin + float(start)) / frame) for start in when.starts]
    starts, lengths, shares, at = [], [], [], 0
    for token in tokens:
        text = model.is_text(token)
        starts.append(frames[at])
        lengths.append(frames[at + 1] - frames[at] if text else 0)
        shares.append(float(when.probabilities[at]) if text else 0.0)
        at += text
    return tuple(starts), tuple(lengths), tuple(shares)


def _moved(word: Word, window: Window, samples: int) -> Word:
    """The word in seconds of the utterance, within it."""
    begin, end = window.start / SAMPLE_RATE, samples / SAMPLE_RATE
    return word.model_copy(
        update={
            "start": round(min(begin + word.start, end), DIGITS),
            "end": round(min(begin + word.end, end), DIGITS),
            "confidence": round(word.confidence, CONFIDENCE_DIGITS),
        }
    )


def _answer(model: AttentionModel, utterance: _Utterance, nbest: int) -> Answer:
    frames = utterance.windows * model.window_frames
    if utterance.broken:
        return Answer((), None, frames=frames)
    kept = sorted(utterance.kept, key=lambda each: each.window.start)
    best = Hypothesis(
        tokens=tuple(token for each in kept for token in each.tokens),
        score=sum(each.score for each in kept),
        times=tuple(time for each in kept for time in each.times),
        durations=tuple(length for each in kept for length in each.durations),
        confidences=tuple(share for each in kept for share in each.confidences),
    )
    others: list[Hypothesis] = []
    if len(kept) == 1:
        text_alone = not utterance.request.options.single
        scores: dict[tuple[int, ...], float] = {}
        for found in kept[0].others:
            tokens = tuple(token for token in found.tokens if not text_alone or model.is_text(token))
            if tokens != best.tokens:  # answers that differ in their times alone are one
                scores.setdefault(tokens, found.score)
        others = [Hypothesis(tokens, score, (), ()) for tokens, score in scores.items()]
    words = tuple(word for each in kept for word in each.words)
    return Answer((best, *others)[:nbest], None, words, frames, utterance.language)
