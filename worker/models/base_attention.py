"""What a search asks of an attention decoder and of its model, whichever family it belongs to.

Owns the protocols and what they exchange. Encoders, rules on logits and the search are others' business.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal, Protocol, TypeVar, runtime_checkable

import mlx.core as mx
import numpy as np
from numpy.typing import NDArray

from spool.domain.transcript import Word
from worker.models.base import PreparedRequest, SpeechModel

State = TypeVar("State")
RuleState = dict[str, mx.array]
SAMPLE_RATE = 16_000


@dataclass(frozen=True, slots=True)
class TokenTimes:
    """Where the tokens of one utterance were heard.

    starts: float32 [n + 1], seconds from the utterance's start, never decreasing; the last is the end of the
    last token. probabilities: float32 [n], of each token among the text tokens.
    """

    starts: NDArray[np.float32]
    probabilities: NDArray[np.float32]

    @classmethod
    def even(cls, probabilities: NDArray[np.float32], seconds: float) -> "TokenTimes":
        """Where nothing can be told of times: the tokens side by side."""
        return cls(np.linspace(0, seconds, len(probabilities) + 1, dtype=np.float32), probabilities)


class AttentionHead(Protocol[State]):
    """An autoregressive decoder that attends to encoder frames.

    A state belongs to whoever holds it last: every call that takes one may reuse its memory.
    """

    @property
    def eos(self) -> int:
        """The token that ends a hypothesis."""

    @property
    def max_tokens(self) -> int:
        """The most tokens of one sequence, prompt and end included."""

    def start(self, encoded: Sequence[Any], prompts: Sequence[Sequence[int]], beam: int) -> State:
        """A state of `len(prompts)` utterances of `beam` equal hypotheses each, behind all but the last token
        of each prompt. encoded: what the family's encoder gave for each utterance."""

    def step(self, tokens: mx.array, state: State) -> tuple[mx.array, State]:
        """tokens int32 [B, K], one for each hypothesis -> logits float32 [B * K, V] of the next, and the
        state behind them."""

    def reorder(self, state: State, parents: mx.array) -> State:
        """Hypothesis k of utterance b goes on from its hypothesis parents[b, k] (int32 [B, K]). By index: no
        key or value is copied."""

    def select(self, state: State, utterances: Sequence[int]) -> State:
        """The state of these utterances alone, in this order."""

    def join(self, states: Sequence[State]) -> State:
        """One state of the utterances of several, in order."""

    def score(
        self,
        encoded: Sequence[Any],
        prompts: Sequence[Sequence[int]],
        nbest: Sequence[Sequence[Sequence[int]]],
    ) -> list[NDArray[np.float32]]:
        """For each utterance the sum of log-probabilities of each of its sequences behind its prompt,
        teacher-forced and without rules."""


@dataclass(frozen=True, slots=True)
class Trail:
    """What a greedy search leaves of an answer that ended: how the prompt's tokens, the answer's and the end
    heard the frames, and the log-probability of each of the answer's among the tokens below the end."""

    heard: mx.array
    log_probs: NDArray[np.float32]


@runtime_checkable
class TrailHead(Protocol):
    """An `AttentionHead` whose states may keep how an utterance's tokens heard its frames."""

    def keeps_trail(self, beam: int) -> bool:
        """Whether states of so many hypotheses an utterance do."""

    def trail(self, state: Any, utterance: int, tokens: int) -> mx.array:  # noqa: ANN401 - the head's own
        """How the first `tokens` of an utterance, its prompt's among them, heard the frames."""


@dataclass(frozen=True, slots=True)
class EndRule:
    """What ends a hypothesis, and what becomes of it.

    ends: the tokens. becomes: "set_aside" until enough are (OpenAI); "kept" in the beam, where it takes no
    more tokens and competes with the others until all have ended (NeMo); "replaced" by a better one until
    none can be (transformers). length_penalty: where a request says nothing of it.
    """

    ends: tuple[int, ...]
    becomes: Literal["set_aside", "kept", "replaced"] = "set_aside"
    length_penalty: float = 0.0


class LogitsRules(Protocol):
    """Which tokens may come next. The state is arrays [B, K, ...] for B utterances of K hypotheses, which the
    search reorders, cuts and joins with its own."""

    def start(self, requests: Sequence[Any], beam: int) -> RuleState:
        """The state of `beam` hypotheses of each request before anything is sampled."""

    def best(
        self, logits: mx.array, state: RuleState, count: int, gains: mx.array | None = None
    ) -> tuple[mx.array, mx.array]:
        """logits [B * K, V] -> the best allowed tokens int32 [B * K, count], -1 where there are no more, and
        their log-probabilities float32 [B * K, count], renormalised over what is allowed. gains: float32
        [B * K, V], added to these log-probabilities; they change nothing of what is allowed."""

    def advance(self, state: RuleState, tokens: mx.array) -> RuleState:
        """The state behind one more token int32 [B, K] of each hypothesis."""


@dataclass(frozen=True, slots=True)
class Prompt:
    """One way to ask for a window's words. options: what the family's rules read; timestamps: whether times
    are among the tokens of the answer; limit: the most tokens of an answer without its end, None for what the
    search allows; language: the one that it asks for."""

    tokens: tuple[int, ...]
    options: Any = None
    timestamps: bool = False
    limit: int | None = None
    language: str | None = None


@dataclass(frozen=True, slots=True)
class Question:
    """What a window is asked: prompts whose answers compete, the likeliest language's first. no_speech: the
    probability that nothing is spoken. languages: the likeliest ones with their probabilities, where the
    model was left to find out. others: prompts that compete too where the answers to the first give a
    reason."""

    prompts: tuple[Prompt, ...]
    no_speech: float = 0.0
    languages: tuple[tuple[str, float], ...] = ()
    others: tuple[Prompt, ...] = ()

    def others_for(self, verdict: "WindowOutcome") -> tuple[Prompt, ...]:
        """The other prompts by the answers so far: those of the language that is kept, all where none is."""
        if verdict.outcome != "kept":
            return self.others
        language = self.prompts[verdict.reading].language
        return tuple(prompt for prompt in self.others if prompt.language == language)


@dataclass(frozen=True, slots=True)
class Window:
    """Samples [start, stop) of an utterance at 16 kHz; round 0 is the first. full: the encoder hears silence
    behind them up to its longest window, of a model that would hear less (`AudioContextModel`)."""

    start: int
    stop: int
    round: int = 0
    full: bool = False

    @property
    def seconds(self) -> float:
        """How long it sounds."""
        return (self.stop - self.start) / SAMPLE_RATE


@dataclass(frozen=True, slots=True)
class PromptAnswer:
    """A window's best answer to one prompt. tokens: without prompt and end, times among them; ended: the
    model ended it itself; words and compression (UTF-8 bytes over what zlib makes of them): of its text;
    mean: the log-probability of a token, the end among them."""

    prompt: Prompt
    tokens: tuple[int, ...]
    ended: bool
    words: int
    compression: float
    mean: float


@dataclass(frozen=True, slots=True)
class WindowOutcome:
    """What becomes of a window. `silent`: nothing is spoken. `kept`: words, and perhaps a rest to be asked.
    `divided`: all answers loop, its parts are asked. `lost`: they loop and cannot be divided further. kept:
    tokens that are the window's words, times among them. again: windows to be asked next. reading: which of
    the answers is kept. doubtful: another answer may be better though this one leaves nothing out."""

    outcome: Literal["kept", "silent", "divided", "lost"]
    kept: tuple[int, ...] = ()
    again: tuple[Window, ...] = ()
    reading: int = 0
    doubtful: bool = False


@dataclass(frozen=True, slots=True)
class Opening:
    """What an answer says before its text: how many tokens, and the code of the language that they name."""

    length: int = 0
    language: str | None = None


NO_OPENING = Opening()


@dataclass(frozen=True, slots=True)
class HeardWindow:
    """A window, what the encoder gave for it, and the tokens that are kept as its answer to a prompt, times
    and other orders among them. samples: the window's own. log_probs: of each token, if the search kept
    them. trail: what the search left of exactly these tokens, if it did."""

    window: Window
    encoded: Any
    prompt: Prompt
    tokens: tuple[int, ...]
    samples: NDArray[np.float32]
    log_probs: tuple[float, ...] = ()
    trail: Trail | None = None


@dataclass(frozen=True, slots=True)
class TimedText:
    """A window's text tokens in time, and its words in seconds from its start; no words where the family
    cannot tell times."""

    times: TokenTimes
    words: tuple[Word, ...] | None


@dataclass(frozen=True, slots=True)
class Unread:
    """What the words of an answer may have left out. windows: parts in which no word begins, to be asked by
    themselves. stretched: more sound lies between two words than a word lasts, so another answer may have
    more."""

    windows: tuple[Window, ...] = ()
    stretched: bool = False


@runtime_checkable
class SplittingModel(Protocol):
    """An `AttentionModel` that cuts by itself what is too long to be heard at once."""

    def split(self, samples: NDArray[np.float32]) -> Sequence[Window]:
        """The windows of an utterance, one after another."""


class AttentionModel(SpeechModel, Protocol):
    """A `SpeechModel` with an attention decoder (`heads["attention"]`), which reads in windows."""

    @property
    def rules(self) -> LogitsRules:
        """Which tokens may come next."""

    @property
    def end_rule(self) -> EndRule:
        """What ends a hypothesis."""

    @property
    def aligner(self) -> Any:  # noqa: ANN401 - a SpeechModel with a CTC head
        """A second model that tells when a text was spoken; None where the family does it itself or nobody
        can."""

    def frames_in(self, samples: int) -> int:
        """Encoder frames that a window of so many samples costs."""

    def encode(self, samples: Sequence[NDArray[np.float32]]) -> Sequence[Any]:
        """Each window by itself, as `AttentionHead.start` takes it."""

    def ask(
        self,
        encoded: Sequence[Any],
        prepared: Sequence[PreparedRequest],
        languages: Sequence[str | None],
    ) -> list[Question]:
        """What each window is asked; languages: what is known of each already."""

    def is_text(self, token: int) -> bool:
        """Whether a token is text and no order to the model."""

    def opening(self, tokens: Sequence[int]) -> Opening:
        """What an answer of these tokens says before its text."""

    def judge(
        self,
        window: Window,
        readings: Sequence[PromptAnswer],
        question: Question,
        samples: NDArray[np.float32],
    ) -> WindowOutcome:
        """What becomes of a window of these samples, by its answers. Neither clock nor chance may decide."""

    def time(self, windows: Sequence[HeardWindow]) -> list[TimedText]:
        """When the words of each window were spoken. Each window by itself: no neighbour has a say."""

    def unread(self, heard: HeardWindow, times: TokenTimes) -> Unread:
        """What an answer passed over in its window. Neither clock nor chance may decide."""


class AudioContextModel(AttentionModel, Protocol):
    """An `AttentionModel` that takes the option `audio_context`."""

    def frames_in(self, samples: int, *, full: bool = False) -> int:
        """As `AttentionModel.frames_in`, of a full window if so asked."""

    def encode(
        self, samples: Sequence[NDArray[np.float32]], full: Sequence[bool] | None = None
    ) -> Sequence[Any]:
        """As `AttentionModel.encode`; full: for which of them the encoder hears the full window."""
