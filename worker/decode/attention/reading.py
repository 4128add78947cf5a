"""Utterances through an attention decoder, in rounds: what each window is asked, and what is asked again.

Every round encodes its windows once and searches their first prompts together; the family judges the answers.
Where an answer gives a reason, the window's other prompts are asked too, on the same encoding.
Windows of one utterance change nothing in another's. Knows no family and no engine.
"""

import zlib
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any, cast

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
    AudioContextModel,
    HeardWindow,
    PromptAnswer,
    Question,
    SplittingModel,
    TimedText,
    Unread,
    Window,
    WindowOutcome,
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
    found: tuple[SearchAnswer, ...] = ()

    @property
    def has_nan(self) -> bool:
        """Whether a search met scores that are NaN."""
        return not all(answer.hypotheses for answer in self.found)


@dataclass(frozen=True, slots=True)
class _HeardWindow:
    """A window with what becomes of it; where words are kept, when they were spoken, what they passed over,
    and whether more sound lies between two of them than a word lasts."""

    searched: _SearchedWindow
    verdict: WindowOutcome
    timed: TimedText | None = None
    passed: tuple[Window, ...] = ()
    again: tuple[Window, ...] = ()
    stretched: bool = False

    @property
    def is_doubtful(self) -> bool:
        """Whether its other prompts are to be asked: something of it would be asked again, all answers loop,
        or the family doubts the one that is kept."""
        if self.searched.has_nan:
            return False
        again = bool(self.passed or self.again)
        return again or self.stretched or self.verdict.doubtful or self.verdict.outcome in ("divided", "lost")


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
    waiting = [(each, window) for each in utterances for window in _split(model, each.samples)]
    while waiting:
        waiting = _read_round(model, waiting, options, rule)
    return [_answer_of(model, each, options.nbest) for each in utterances]


def _read_round(
    model: AttentionModel,
    waiting: Sequence[tuple[_Utterance, Window]],
    options: SearchOptions,
    rule: Beams,
) -> list[tuple[_Utterance, Window]]:
    """Leaves each window's answer with its utterance. -> what is asked in the next round, when no encoding of
    this one is held any more."""
    searched = _search(model, _encode(model, waiting), options, rule)
    heard = _ask_others(model, _hear(model, searched), options, rule)
    return [pair for each in heard for pair in _settle(model, each)]


def _split(model: AttentionModel, samples: Samples) -> Sequence[Window]:
    """The windows that an utterance is asked first."""
    return model.split(samples) if isinstance(model, SplittingModel) else (Window(0, len(samples)),)


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


def _encode(model: AttentionModel, waiting: Sequence[tuple[_Utterance, Window]]) -> list[_SearchedWindow]:
    """The windows of a round, each encoded once, and what they are asked."""
    waiting = [
        (each, replace(window, full=True) if _hears_full_windows(model, each) else window)
        for each, window in waiting
        if window.stop - window.start >= SHORTEST_SAMPLES
    ]
    if not waiting:
        return []
    pieces = [each.samples[window.start : window.stop] for each, window in waiting]
    encoded, frames = _encode_pieces(model, pieces, [window.full for _, window in waiting])
    questions = model.ask(
        encoded, [each.prepared for each, _ in waiting], [each.language for each, _ in waiting]
    )
    for (each, _), own in zip(waiting, frames, strict=True):
        each.frames += own
    return [
        _SearchedWindow(*pair, piece, own, question)
        for pair, piece, own, question in zip(waiting, pieces, encoded, questions, strict=True)
    ]


def _hears_full_windows(model: AttentionModel, utterance: _Utterance) -> bool:
    """Whether the encoder hears silence behind the sound up to its longest window: as asked, and where the
    language has to be detected, which goes wrong more often with less (LOG.md)."""
    can, request = model.capabilities, utterance.request
    if "audio_context" not in can.options:
        return False
    detects = can.detects and utterance.language is None and request.pinned is None
    return detects or request.audio_context == "full"


def _encode_pieces(
    model: AttentionModel, pieces: Sequence[Samples], full: Sequence[bool]
) -> tuple[Sequence[Any], list[int]]:
    """Windows of these samples, and the frames that each costs."""
    if not any(full):
        return model.encode(pieces), [model.frames_in(len(piece)) for piece in pieces]
    hearing = cast("AudioContextModel", model)
    frames = [hearing.frames_in(len(piece), full=own) for piece, own in zip(pieces, full, strict=True)]
    return hearing.encode(pieces, full), frames


def _search(
    model: AttentionModel, windows: Sequence[_SearchedWindow], options: SearchOptions, rule: Beams
) -> list[_SearchedWindow]:
    """The windows with the answers to those of their prompts that have none yet."""
    if not windows:
        return []
    requests = [
        SearchRequest((row, place), each.encoded, prompt.tokens, prompt.options, prompt.limit, row)
        for row, each in enumerate(windows)
        for place, prompt in enumerate(each.question.prompts)
        if place >= len(each.found)
    ]
    fusion = fuse_tokens(
        model, options, [_request_of(model, each.utterance, each.window) for each in windows]
    )
    search = AttentionSearch(model.heads["attention"], model.rules, rule, fusion=fusion)
    found: list[list[SearchAnswer]] = [[] for _ in windows]
    for request, answer in zip(requests, search.run(requests), strict=True):
        found[request.fused].append(answer)
    return [replace(each, found=(*each.found, *own)) for each, own in zip(windows, found, strict=True)]


def _ask_others(
    model: AttentionModel, heard: Sequence[_HeardWindow], options: SearchOptions, rule: Beams
) -> list[_HeardWindow]:
    """The windows, those in doubt after all their prompts."""
    doubtful = []
    for index, each in enumerate(heard):
        question = each.searched.question
        others = question.others_for(each.verdict) if each.is_doubtful else ()
        if others:
            asked = replace(question, prompts=(*question.prompts, *others), others=())
            doubtful.append((index, replace(each.searched, question=asked)))
    searched = _search(model, [each for _, each in doubtful], options, rule)
    settled = list(heard)
    known = [heard[index] for index, _ in doubtful]
    for (index, _), each in zip(doubtful, _hear(model, searched, known), strict=True):
        settled[index] = each
    return settled


def _settle(model: AttentionModel, heard: _HeardWindow) -> list[tuple[_Utterance, Window]]:
    """Leave a window's answer with its utterance. -> what is asked again."""
    searched, verdict = heard.searched, heard.verdict
    utterance, question, window = searched.utterance, searched.question, searched.window
    if searched.has_nan:
        utterance.has_nan = True
        return []
    found = searched.found[verdict.reading]
    named = model.opening(found.hypotheses[found.answer].tokens).language
    utterance.language = named or question.prompts[verdict.reading].language
    utterance.languages = utterance.languages or _put_first(utterance.language, question.languages)
    if heard.timed is not None:
        tokens = verdict.kept if utterance.single else text_tokens(model, verdict.kept)
        score = found.hypotheses[found.answer].score
        best = place_tokens(model, tokens, score, heard.timed.times, window)
        words = tuple(place_word(word, window, len(utterance.samples)) for word in heard.timed.words or ())
        utterance.answers.append(WindowAnswer(window, best, words, found, heard.passed))
    return [(utterance, part) for part in (*heard.passed, *heard.again)]


def _request_of(model: AttentionModel, utterance: _Utterance, window: Window) -> DecodeRequest:
    """The request of one window: language model and phrases go on from what is known to stand before it."""
    begin = window.start / SAMPLE_RATE / model.info.frame_seconds
    before = [
        token
        for each in sorted(utterance.answers, key=lambda each: each.window.start)
        for token, time in zip(each.best.tokens, each.best.times, strict=True)
        if each.window.start < window.start and time < begin and model.is_text(token)
    ]
    return utterance.request.model_copy(update={"context": (*utterance.request.context, *before)})


def _judge(model: AttentionModel, searched: _SearchedWindow) -> WindowOutcome:
    """What becomes of a window by its answers; one that is read by itself keeps its only one."""
    bests = [answer.hypotheses[answer.answer] for answer in searched.found]
    if searched.utterance.single:
        return WindowOutcome("kept", bests[0].tokens)
    readings = []
    for prompt, best in zip(searched.question.prompts, bests, strict=True):
        text = model.tokenizer.decode(text_tokens(model, best.tokens))
        mean = best.score / (len(best.tokens) + 1)
        words, compression = len(text.split()), compression_ratio(text)
        readings.append(PromptAnswer(prompt, best.tokens, best.ended, words, compression, mean))
    return model.judge(searched.window, readings, searched.question, searched.samples)


def _hear(
    model: AttentionModel, windows: Sequence[_SearchedWindow], known: Sequence[_HeardWindow] = ()
) -> list[_HeardWindow]:
    """What becomes of windows by their answers, and when the tokens that are kept were spoken. known: what
    became of them by fewer answers."""
    heard, spoken = [], {}
    for index, searched in enumerate(windows):
        if searched.has_nan:
            heard.append(_HeardWindow(searched, WindowOutcome("lost")))
            continue
        verdict = _judge(model, searched)
        before = known[index] if known else None
        if before is not None and before.timed is not None and before.verdict.reading == verdict.reading:
            heard.append(replace(before, searched=searched))
            continue
        heard.append(_HeardWindow(searched, verdict, again=verdict.again))
        if verdict.kept or searched.utterance.single:
            prompt, found = searched.question.prompts[verdict.reading], searched.found[verdict.reading]
            trail = found.trail if found.hypotheses[0].tokens == verdict.kept else None
            spoken[index] = HeardWindow(
                searched.window,
                searched.encoded,
                prompt,
                verdict.kept,
                searched.samples,
                _log_probs(searched, verdict),
                trail,
            )
    for (index, own), timed in zip(spoken.items(), time_words(model, list(spoken.values())), strict=True):
        each = heard[index]
        unread = Unread() if each.searched.utterance.single else model.unread(own, timed.times)
        passed, again = join_windows(unread.windows, each.verdict.again)
        heard[index] = replace(each, timed=timed, passed=passed, again=again, stretched=unread.stretched)
    return heard


def _log_probs(searched: _SearchedWindow, verdict: WindowOutcome) -> tuple[float, ...]:
    """Of the tokens that are kept, if the search kept theirs, all are kept, and nobody else had a say."""
    if searched.utterance.request.language_model is not None or searched.utterance.request.phrases:
        return ()
    found = searched.found[verdict.reading]
    best = found.hypotheses[found.answer]
    return best.log_probs if verdict.kept == best.tokens else ()


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
