"""Utterances through an attention decoder: windows, the questions put to each, and what is asked again.

Every round encodes its windows once and searches all their prompts together; the family judges the answers.
Windows of one utterance change nothing in another's. Knows no family and no engine.
"""

import zlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from spool.domain.recognition import Hypothesis
from spool.domain.transcript import Word
from spool.errors import InvalidRequest
from worker.decode.alignment.aligner import align_texts
from worker.decode.alignment.words import AlignedWord
from worker.decode.attention.beam import BeamSettings
from worker.decode.attention.fused import fuse_tokens
from worker.decode.attention.kept import KeptBeam
from worker.decode.attention.listing import WindowText, combine
from worker.decode.attention.loop import AttentionSearch, Beams, SearchAnswer, SearchRequest
from worker.decode.result import Answer
from worker.decode.types import DecodeRequest, SearchOptions
from worker.decode.words import CONFIDENCE_DIGITS, DIGITS
from worker.models.base import PreparedRequest, TokenSpan
from worker.models.base_attention import (
    SAMPLE_RATE,
    AttentionModel,
    HeardWindow,
    Question,
    Reading,
    TimedText,
    TokenTimes,
    Verdict,
    Window,
)

SHORTEST_SAMPLES = 400  # one frame of features; nothing is heard in less
Samples = NDArray[np.float32]
Item = TypeVar("Item")


@dataclass(frozen=True, slots=True)
class _Kept:
    """What was heard in one window. passed: its parts that the answer passed over."""

    window: Window
    tokens: tuple[int, ...]
    score: float
    times: tuple[int, ...]
    durations: tuple[int, ...]
    confidences: tuple[float, ...]
    words: tuple[Word, ...]
    answers: SearchAnswer
    passed: tuple[Window, ...]


@dataclass(slots=True)
class _Utterance:
    """An utterance while its windows are decoded. `broken`: its scores contain NaN."""

    samples: Samples
    ask: DecodeRequest
    request: PreparedRequest
    language: str | None = None
    languages: tuple[tuple[str, float], ...] = ()
    frames: int = 0
    kept: list[_Kept] = field(default_factory=list)
    broken: bool = False


@dataclass(frozen=True, slots=True)
class _Asked:
    """A window of a round, what the encoder gave for it, and the answers to its prompts."""

    utterance: _Utterance
    window: Window
    samples: Samples
    encoded: Any
    question: Question
    answers: tuple[SearchAnswer, ...]


@dataclass(frozen=True, slots=True)
class _Heard:
    """A window of which words are kept."""

    asked: _Asked
    verdict: Verdict


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
    settings = beams_of(model, options)
    utterances = [
        _Utterance(row, request, model.prepare(request.speech))
        for row, request in zip(samples, requests, strict=True)
    ]
    waiting = [(each, Window(0, len(each.samples))) for each in utterances]
    while waiting:
        again: list[tuple[_Utterance, Window]] = []
        heard: list[_Heard] = []
        for asked in _ask(model, waiting, options, settings):
            if not all(answer.hypotheses for answer in asked.answers):
                asked.utterance.broken = True
                continue
            verdict = _judged(model, asked)
            utterance, question = asked.utterance, asked.question
            utterance.language = question.prompts[verdict.reading].language
            utterance.languages = utterance.languages or _led_by(utterance.language, question.languages)
            if verdict.kept or utterance.request.options.single:
                heard.append(_Heard(asked, verdict))
            else:
                again += [(utterance, window) for window in verdict.again]
        waiting = again + _keep(model, heard)
    return [_answer(model, each, options.nbest) for each in utterances]


def _led_by(language: str | None, languages: Sequence[tuple[str, float]]) -> tuple[tuple[str, float], ...]:
    """Languages with their probabilities, highest first; this one has taken the first place."""
    codes = [language, *(code for code, _ in languages if code != language)]
    return tuple((code, share) for code, (_, share) in zip(codes, languages, strict=False) if code)


def beams_of(model: AttentionModel, options: SearchOptions) -> Beams:
    """The search that these options and the model's rule of ending ask for. Raises InvalidRequest."""
    beam = options.beam if options.decoder == "beam" else 1
    if not model.end_rule.kept:
        return BeamSettings() if beam == 1 and options.decoder == "greedy" else _set_aside(options)
    if options.patience != 1.0:
        raise InvalidRequest(
            f"patience: {model.info.name} searches until all hypotheses have ended; leave it at 1"
        )
    overrun = int(options.decoder == "beam")  # NeMo's beams take one token more than its greedy search
    return KeptBeam(model.end_rule.ends, beam, options.length_penalty or 0.0, overrun)


def _set_aside(options: SearchOptions) -> BeamSettings:
    return BeamSettings(options.beam, options.patience, options.length_penalty)


def _ask(
    model: AttentionModel,
    waiting: Sequence[tuple[_Utterance, Window]],
    options: SearchOptions,
    settings: Beams,
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
        SearchRequest((row, place), encoded[row], prompt.tokens, prompt.options, prompt.limit, row)
        for row, question in enumerate(questions)
        for place, prompt in enumerate(question.prompts)
    ]
    fusion = fuse_tokens(model, options, [_asks(model, *each) for each in waiting])
    search = AttentionSearch(model.heads["attention"], model.rules, settings, fusion=fusion)
    by_place = {answer.key: answer for answer in search.run(requests)}
    asked = []
    for row, ((each, window), question) in enumerate(zip(waiting, questions, strict=True)):
        each.frames += model.frames_in(len(pieces[row]))
        answers = tuple(by_place[row, place] for place in range(len(question.prompts)))
        asked.append(_Asked(each, window, pieces[row], encoded[row], question, answers))
    return asked


def _asks(model: AttentionModel, utterance: _Utterance, window: Window) -> DecodeRequest:
    """What the window asks for itself: language model and phrases go on from what is known to stand before
    it."""
    before = window.start / SAMPLE_RATE / model.info.frame_seconds
    heard = [
        token
        for each in sorted(utterance.kept, key=lambda each: each.window.start)
        for token, time in zip(each.tokens, each.times, strict=True)
        if each.window.start < window.start and time < before and model.is_text(token)
    ]
    return replace(utterance.ask, context=(*utterance.ask.context, *heard))


def _judged(model: AttentionModel, asked: _Asked) -> Verdict:
    """What becomes of a window by its answers; one that is read by itself keeps its only one."""
    bests = [answer.hypotheses[answer.answer] for answer in asked.answers]
    if asked.utterance.request.options.single:
        return Verdict("kept", bests[0].tokens)
    readings = []
    for prompt, best in zip(asked.question.prompts, bests, strict=True):
        text = model.tokenizer.decode([token for token in best.tokens if model.is_text(token)])
        mean = best.score / (len(best.tokens) + 1)
        words, compression = len(text.split()), compression_ratio(text)
        readings.append(Reading(prompt, best.tokens, best.ended, words, compression, mean))
    return model.judge(asked.window, readings, asked.question, asked.samples)


def _keep(model: AttentionModel, heard: Sequence[_Heard]) -> list[tuple[_Utterance, Window]]:
    """Find out when the tokens were spoken, and leave them with their utterances. -> what is asked again."""
    windows = [
        HeardWindow(
            each.asked.window,
            each.asked.encoded,
            each.asked.question.prompts[each.verdict.reading],
            each.verdict.kept,
            each.asked.samples,
        )
        for each in heard
    ]
    timed = _with_words(model, windows, model.time(windows))
    again = []
    for kept_of, spoken, each in zip(heard, windows, timed, strict=True):
        asked, tokens = kept_of.asked, kept_of.verdict.kept
        utterance, window, answers = asked.utterance, asked.window, asked.answers[kept_of.verdict.reading]
        text = tuple(token for token in tokens if model.is_text(token))
        single = utterance.request.options.single
        starts, lengths, shares = _columns(model, tokens if single else text, each.times, window)
        unread = () if single else model.unread(spoken, each.times)
        passed, rest = _joined(unread, kept_of.verdict.again)
        kept = _Kept(
            window,
            tokens if single else text,
            answers.hypotheses[answers.answer].score,
            starts,
            lengths,
            shares,
            tuple(_moved(word, window, len(utterance.samples)) for word in each.words or ()),
            answers,
            passed,
        )
        utterance.kept.append(kept)
        again += [(utterance, part) for part in (*passed, *rest)]
    return again


def _joined(
    unread: Sequence[Window], rest: Sequence[Window]
) -> tuple[tuple[Window, ...], tuple[Window, ...]]:
    """What a window's answer passed over before the rest behind it, and that rest: where they touch, one
    window of both."""
    if not rest:
        return tuple(unread), ()
    first, *others = rest
    passed = tuple(window for window in unread if window.stop < first.start)
    touching = [window.start for window in unread if window.stop >= first.start]
    return passed, (replace(first, start=min([first.start, *touching])), *others)


def _with_words(
    model: AttentionModel,
    windows: Sequence[HeardWindow],
    timed: Sequence[TimedText],
) -> list[TimedText]:
    """The words of those windows that the family could not tell: by its aligner where it has one, else side
    by side."""
    answers, spelled = list(timed), {}
    for index, window in enumerate(windows):
        if timed[index].words is None:
            text = [token for token in window.tokens if model.is_text(token)]
            spelled[index] = model.tokenizer.words(text, window.prompt.language)
    alignments: list[tuple[AlignedWord, ...] | None] = [None] * len(spelled)
    if model.aligner is not None:
        texts = [" ".join(span.text for span in spans) for spans in spelled.values()]
        alignments = align_texts(model.aligner, [windows[index].samples for index in spelled], texts)
    for (index, spans), aligned in zip(spelled.items(), alignments, strict=True):
        each = timed[index]
        if aligned is not None and len(aligned) == len(spans):
            answers[index] = _by_aligner(each.times, spans, aligned)
        else:
            starts, shares = each.times.starts, each.times.probabilities
            ends = [(float(starts[span.first]), float(starts[span.last])) for span in spans]
            answers[index] = TimedText(each.times, _words(spans, ends, shares))
    return answers


def _by_aligner(times: TokenTimes, spans: Sequence[TokenSpan], aligned: Sequence[AlignedWord]) -> TimedText:
    """The words in the aligner's seconds; their tokens share a word's time evenly."""
    starts = np.full(len(times.starts), aligned[-1].end if aligned else times.starts[-1], np.float32)
    for span, word in zip(spans, aligned, strict=True):
        starts[span.first : span.last] = np.linspace(word.start, word.end, span.last - span.first, False)
    # Tokens that are in no word stand where the next one begins.
    for at in range(len(starts) - 2, -1, -1):
        if not any(span.first <= at < span.last for span in spans):
            starts[at] = starts[at + 1]
    ends = [(word.start, word.end) for word in aligned]
    return TimedText(TokenTimes(starts, times.probabilities), _words(spans, ends, times.probabilities))


def _words(
    spans: Sequence[TokenSpan], seconds: Sequence[tuple[float, float]], shares: NDArray[np.float32]
) -> tuple[Word, ...]:
    """The words with their start and end; as sure as the least probable of their tokens."""
    return tuple(
        Word(
            text=span.text,
            start=start,
            end=end,
            confidence=float(shares[span.first : span.last].min(initial=1.0)),
        )
        for span, (start, end) in zip(spans, seconds, strict=True)
    )


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
    if utterance.broken:
        return Answer((), None, frames=utterance.frames)
    kept = sorted(utterance.kept, key=lambda each: each.window.start)
    frame_samples = model.info.frame_seconds * SAMPLE_RATE
    rows = _in_order(
        kept,
        lambda each: list(zip(each.times, each.tokens, each.durations, each.confidences, strict=True)),
        lambda row: row[0] * frame_samples,
    )
    best = Hypothesis(
        tokens=tuple(token for _, token, _, _ in rows),
        score=sum(each.score for each in kept),
        times=tuple(time for time, _, _, _ in rows),
        durations=tuple(length for _, _, length, _ in rows),
        confidences=tuple(share for _, _, _, share in rows),
    )
    words = tuple(_in_order(kept, lambda each: each.words, lambda word: word.start * SAMPLE_RATE))
    answer = Answer((best,), None, words, utterance.frames, utterance.language, languages=utterance.languages)
    if utterance.request.options.single and kept:
        answers = kept[0].answers
        listed = [Hypothesis(each.tokens, each.score, (), ()) for each in answers.hypotheses]
        listed[answers.answer] = best
        text = model.tokenizer.decode(best.tokens)
        return replace(answer, hypotheses=tuple(listed)[:nbest], text=text)
    return replace(answer, hypotheses=_listed(model, kept, best, nbest))


def _in_order(
    kept: Sequence[_Kept], items: Callable[[_Kept], Sequence[Item]], start: Callable[[Item], float]
) -> list[Item]:
    """The items of all windows: window by window, but what was passed over and asked again comes where it was
    spoken. start: an item's, in samples."""
    placed: list[tuple[int, Item]] = []
    for each in kept:
        place = each.window.start
        for item in items(each):
            behind = [part.stop for part in each.passed if start(item) >= (part.start + part.stop) / 2]
            place = max([place, *behind])
            placed.append((place, item))
    return [item for _, item in sorted(placed, key=lambda pair: pair[0])]


def _listed(
    model: AttentionModel, kept: Sequence[_Kept], best: Hypothesis, count: int
) -> tuple[Hypothesis, ...]:
    """The answer and other hypotheses behind it, at most `count`: of each window one."""
    ways = combine([_texts(model, each, len(kept) == 1) for each in kept], count)
    frame_samples = model.info.frame_seconds * SAMPLE_RATE
    return best, *(
        Hypothesis(_joined_tokens(kept, texts, frame_samples), sum(text.score for text in texts), (), ())
        for texts in ways[1:]
    )


def _joined_tokens(
    kept: Sequence[_Kept], texts: Sequence[WindowText], frame_samples: float
) -> tuple[int, ...]:
    """Those of one text of each window, in the order in which they were spoken."""
    tokens = {each.window: text.tokens for each, text in zip(kept, texts, strict=True)}

    def timed(each: _Kept) -> list[tuple[int, int]]:
        # Only the answer has times, and only where that is kept is a window parted by another.
        chosen = tokens[each.window]
        return list(zip(each.times if chosen == each.tokens else [0] * len(chosen), chosen, strict=True))

    return tuple(token for _, token in _in_order(kept, timed, lambda row: row[0] * frame_samples))


def _texts(model: AttentionModel, kept: _Kept, alone: bool) -> list[WindowText]:
    """What a window may say, the answer first; that alone where another window reads a part of it, which the
    other hypotheses may have read too. Those that differ in their times alone are one."""

    def spoken(tokens: Sequence[int]) -> tuple[int, ...]:
        return tuple(token for token in tokens if model.is_text(token))

    hypotheses = kept.answers.hypotheses
    is_parted = bool(kept.passed) or spoken(hypotheses[kept.answers.answer].tokens) != kept.tokens
    texts = {kept.tokens: kept.score}
    for each in hypotheses if alone or not is_parted else ():
        texts.setdefault(spoken(each.tokens), each.score)
    return [WindowText(*pair) for pair in texts.items()]
