"""Utterances through an attention decoder, in rounds: what each window is asked, and what is asked again.

Every round encodes its windows once and searches all their prompts together; the family judges the answers.
Windows of one utterance change nothing in another's. Knows no family and no engine.
"""

import zlib
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from spool.errors import InvalidRequest
from worker.decode.answer import Answer
from worker.decode.attention.assembly import WindowAnswer, assemble, text_tokens
from worker.decode.attention.beam import (
    AttentionSearch,
    Beams,
    BeamSettings,
    GenerateBeam,
    KeptBeam,
    SearchAnswer,
    SearchRequest,
)
from worker.decode.attention.fused import fuse_tokens
from worker.decode.attention.timing import place_tokens, place_word, time_words
from worker.models.base import PreparedRequest
from worker.models.base_attention import (
    SAMPLE_RATE,
    AttentionModel,
    HeardWindow,
    Question,
    Reading,
    Verdict,
    Window,
)
from worker.models.requests import DecodeRequest, SearchOptions

SHORTEST_SAMPLES = 400  # one frame of features; nothing is heard in less
Samples = NDArray[np.float32]


@dataclass(slots=True)
class _Utterance:
    """An utterance while its windows are decoded. `has_nan`: its scores contain NaN."""

    samples: Samples
    request: DecodeRequest
    prepared: PreparedRequest
    language: str | None = None
    languages: tuple[tuple[str, float], ...] = ()
    frames: int = 0
    answers: list[WindowAnswer] = field(default_factory=list)
    has_nan: bool = False

    @property
    def single(self) -> bool:
        """Whether it is one window, whose hypotheses are given as the search found them."""
        return self.request.single


@dataclass(frozen=True, slots=True)
class _SearchedWindow:
    """A window of a round, what the encoder gave for it, and what was found for each of its prompts."""

    utterance: _Utterance
    window: Window
    samples: Samples
    encoded: Any
    question: Question
    found: tuple[SearchAnswer, ...]


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
    rule = beams_of(model, options)
    utterances = [
        _Utterance(row, request, model.prepare(request))
        for row, request in zip(samples, requests, strict=True)
    ]
    waiting = [(each, Window(0, len(each.samples))) for each in utterances]
    while waiting:
        again: list[tuple[_Utterance, Window]] = []
        kept: list[tuple[_SearchedWindow, Verdict]] = []
        for searched in _search_windows(model, waiting, options, rule):
            utterance, question = searched.utterance, searched.question
            if not all(answer.hypotheses for answer in searched.found):
                utterance.has_nan = True
                continue
            verdict = _judge(model, searched)
            utterance.language = question.prompts[verdict.reading].language
            utterance.languages = utterance.languages or _put_first(utterance.language, question.languages)
            if verdict.kept or utterance.single:
                kept.append((searched, verdict))
            else:
                again += [(utterance, window) for window in verdict.again]
        waiting = again + _keep(model, kept)
    return [_answer_of(model, each, options.nbest) for each in utterances]


def _put_first(language: str | None, languages: Sequence[tuple[str, float]]) -> tuple[tuple[str, float], ...]:
    """Languages with their probabilities, highest first; this one has taken the first place."""
    codes = [language, *(code for code, _ in languages if code != language)]
    return tuple((code, share) for code, (_, share) in zip(codes, languages, strict=False) if code)


def beams_of(model: AttentionModel, options: SearchOptions) -> Beams:
    """The search that these options and the model's rule of ending ask for. Raises InvalidRequest."""
    beam = options.beam if options.decoder == "beam" else 1
    end_rule = model.end_rule
    if end_rule.becomes == "set_aside":
        if options.decoder == "greedy":
            return BeamSettings()
        return BeamSettings(options.beam, options.patience, options.length_penalty)
    if options.patience != 1.0:
        raise InvalidRequest(
            f"patience: {model.info.name} searches until all hypotheses have ended; leave it at 1"
        )
    penalty = end_rule.length_penalty if options.length_penalty is None else options.length_penalty
    if end_rule.becomes == "replaced":
        return GenerateBeam(end_rule.ends, beam, penalty)
    overrun = int(options.decoder == "beam")  # NeMo's beams take one token more than its greedy search
    return KeptBeam(end_rule.ends, beam, penalty, overrun)


def _search_windows(
    model: AttentionModel,
    waiting: Sequence[tuple[_Utterance, Window]],
    options: SearchOptions,
    rule: Beams,
) -> list[_SearchedWindow]:
    """One round: every window encoded once and asked all its prompts."""
    waiting = [(each, window) for each, window in waiting if window.stop - window.start >= SHORTEST_SAMPLES]
    if not waiting:
        return []
    pieces = [each.samples[window.start : window.stop] for each, window in waiting]
    encoded = model.encode(pieces)
    questions = model.ask(
        encoded, [each.prepared for each, _ in waiting], [each.language for each, _ in waiting]
    )
    requests = [
        SearchRequest((row, place), encoded[row], prompt.tokens, prompt.options, prompt.limit, row)
        for row, question in enumerate(questions)
        for place, prompt in enumerate(question.prompts)
    ]
    fusion = fuse_tokens(model, options, [_request_of(model, *each) for each in waiting])
    search = AttentionSearch(model.heads["attention"], model.rules, rule, fusion=fusion)
    by_place = {answer.key: answer for answer in search.run(requests)}
    searched = []
    for row, ((each, window), question) in enumerate(zip(waiting, questions, strict=True)):
        each.frames += model.frames_in(len(pieces[row]))
        found = tuple(by_place[row, place] for place in range(len(question.prompts)))
        searched.append(_SearchedWindow(each, window, pieces[row], encoded[row], question, found))
    return searched


def _request_of(model: AttentionModel, utterance: _Utterance, window: Window) -> DecodeRequest:
    """The request of one window: language model and phrases go on from what is known to stand before it."""
    begin = window.start / SAMPLE_RATE / model.info.frame_seconds
    before = [
        token
        for each in sorted(utterance.answers, key=lambda each: each.window.start)
        for token, time in zip(each.best.tokens, each.best.times, strict=True)
        if each.window.start < window.start and time < begin and model.is_text(token)
    ]
    return replace(utterance.request, context=(*utterance.request.context, *before))


def _judge(model: AttentionModel, searched: _SearchedWindow) -> Verdict:
    """What becomes of a window by its answers; one that is read by itself keeps its only one."""
    bests = [answer.hypotheses[answer.answer] for answer in searched.found]
    if searched.utterance.single:
        return Verdict("kept", bests[0].tokens)
    readings = []
    for prompt, best in zip(searched.question.prompts, bests, strict=True):
        text = model.tokenizer.decode(text_tokens(model, best.tokens))
        mean = best.score / (len(best.tokens) + 1)
        words, compression = len(text.split()), compression_ratio(text)
        readings.append(Reading(prompt, best.tokens, best.ended, words, compression, mean))
    return model.judge(searched.window, readings, searched.question, searched.samples)


def _keep(
    model: AttentionModel, kept: Sequence[tuple[_SearchedWindow, Verdict]]
) -> list[tuple[_Utterance, Window]]:
    """Find out when the tokens were spoken, and leave them with their utterances. -> what is asked again."""
    windows = [
        HeardWindow(
            searched.window,
            searched.encoded,
            searched.question.prompts[verdict.reading],
            verdict.kept,
            searched.samples,
        )
        for searched, verdict in kept
    ]
    again = []
    for (searched, verdict), heard, timed in zip(kept, windows, time_words(model, windows), strict=True):
        utterance, window, found = searched.utterance, searched.window, searched.found[verdict.reading]
        unread = () if utterance.single else model.unread(heard, timed.times)
        passed, rest = join_windows(unread, verdict.again)
        tokens = verdict.kept if utterance.single else text_tokens(model, verdict.kept)
        score = found.hypotheses[found.answer].score
        best = place_tokens(model, tokens, score, timed.times, window)
        words = tuple(place_word(word, window, len(utterance.samples)) for word in timed.words or ())
        utterance.answers.append(WindowAnswer(window, best, words, found, passed))
        again += [(utterance, part) for part in (*passed, *rest)]
    return again


def join_windows(
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


def _answer_of(model: AttentionModel, utterance: _Utterance, nbest: int) -> Answer:
    if utterance.has_nan:
        return Answer((), None, frames=utterance.frames)
    answer = assemble(model, utterance.answers, nbest, single=utterance.single)
    return replace(
        answer, frames=utterance.frames, language=utterance.language, languages=utterance.languages
    )
