"""The face of a model family: what the search, the engine and the jobs need of any speech model.

Owns the protocols and the plain data that they exchange; the data is read by processes without MLX, so this
file imports none. Leaves networks to their families and searches to `worker.decode`.
"""

import hashlib
import json
import re
from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property, lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, Protocol, runtime_checkable

import numpy as np
from numpy.typing import NDArray

from spool.domain.search.searches import HeadName as HeadName
from spool.domain.transcript import ChunkLanguage
from spool.errors import InvalidRequest
from worker.models.requests import DecodeRequest

if TYPE_CHECKING:
    import mlx.core as mx

DECODER_VERSION = 6
"""Raised with every change after which a search or a model may answer otherwise: transcripts that were begun
before are begun anew."""
MAX_UTTERANCE_SECONDS = 40.0
"""No family may ask for longer chunks: the engine's audio slots hold so much."""


@dataclass(frozen=True, slots=True)
class Independent:
    """Chunks that know nothing of one another. In seconds: where a chunk is best cut, the longest it may be
    with its context, how much both sides hear across a cut that is no pause, and the shortest rest that is
    left to a chunk of its own."""

    aim: float = 20.0
    max: float = 30.0
    overlap: float = 2.0
    tail: float = 5.0

    def __post_init__(self) -> None:
        """Refuse what no audio slot holds."""
        if self.max > MAX_UTTERANCE_SECONDS:
            raise ValueError(f"chunks must not be longer than {MAX_UTTERANCE_SECONDS:g} s")


@dataclass(frozen=True, slots=True)
class Contiguous:
    """Chunks of equal length, one after another, with context on both sides, in seconds."""

    step: float
    left: float
    right: float


ChunkPolicy = Independent | Contiguous


@dataclass(frozen=True, slots=True)
class PreparedRequest:
    """A request that was checked against the model, and the tokens that go before its answers."""

    request: DecodeRequest
    previous: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class Capabilities:
    """What a model can do. decoders: names of searches. languages: codes; empty where it takes no language.
    options: names of `DecodeRequest` and of `FUSION`, `LATTICES` that it takes; anything else is refused by
    name. att_contexts: the attention contexts (encoder frames left, right) that a cache-aware model may be
    run with, its default first. any_context: it may be run with any. family: as the catalogue calls it.
    detects: whether it finds out which language is spoken. streams: whether it is a
    `worker.models.streaming.StreamingModel`."""

    decoders: frozenset[str]
    languages: frozenset[str]
    tasks: frozenset[str]
    timing: Literal["frames", "alignment", "tokens", "none"]
    options: frozenset[str]
    chunking: ChunkPolicy
    detects: bool = False
    att_contexts: tuple[tuple[int, int], ...] = ()
    family: str = ""
    streams: bool = False
    any_context: bool = False


class Spelling(NamedTuple):
    """Words of a text in a model's tokens, none where it cannot spell one; `marks` are the tokens without a
    length of their own."""

    tokens: Mapping[str, tuple[int, ...]]
    marks: frozenset[int]

    @property
    def labels(self) -> tuple[int, ...]:
        """Every token that some word needs, in order."""
        return tuple(sorted({token for own in self.tokens.values() for token in own}))


@dataclass(frozen=True, slots=True)
class ModelInfo:
    """Which weights these are.

    sha256: of the weights file. files: SHA-256 by role ("weights", "config", "tokenizer"). device: where MLX
    computes. size: the weights' bytes in memory, 0 where that is not known. language_model: SHA-256 of the
    n-gram file that a request named, if any. family, languages, tasks, streams: what the fleet says of it.
    bits: of quantised weights, those of a weight in the file; workers serve them only once measured. None:
    not quantised. warnings: what a request asked for and does not get. reader: `digest` of the model that
    rescores, if any. spelling: of the words that a request wants aligned.
    """

    name: str
    sha256: str
    heads: tuple[str, ...] = ()
    frame_seconds: float = 0.08
    device: str = ""
    language_model: str | None = None
    size: int = 0
    dtype: str = ""
    files: Mapping[str, str] = field(default_factory=dict)
    chunking: Independent = Independent()
    family: str = ""
    languages: tuple[str, ...] = ()
    tasks: tuple[str, ...] = ()
    bits: int | None = None
    warnings: tuple[str, ...] = ()
    reader: str | None = None
    spelling: Spelling | None = None
    streams: bool | None = None

    @property
    def digest(self) -> str:
        """SHA-256 of all that this model's answers depend on: its files, `numerics`, the cut into chunks and
        the decoder's version. Chunks of two of these are never put into one transcript."""
        files = tuple(sorted(self.files.items()))
        return _digest(self.sha256, files, self.numerics, self.chunking, DECODER_VERSION)

    @property
    def makers(self) -> tuple[str | None, ...]:
        """The digests of all that has a say: the model, the language model, and who rescores, if anybody."""
        return self.digest, self.language_model, *([] if self.reader is None else [self.reader])

    @property
    def numerics(self) -> str:
        """What decides the numbers besides the files: the precision and the kind of device."""
        return f"{self.dtype}/{self.device.partition(',')[0].removeprefix('Device(')}"


@lru_cache(maxsize=64)  # every result of every batch names it
def _digest(
    sha256: str, files: tuple[tuple[str, str], ...], numerics: str, chunking: Independent, decoder: int
) -> str:
    maker = [sha256, files, numerics, repr(chunking), decoder]
    return hashlib.sha256(json.dumps(maker).encode()).hexdigest()


@dataclass(frozen=True, slots=True)
class BatchCost:
    """What one utterance takes in a batch: encoder frames, which its share of the time is measured by, and
    bytes of memory on the way from samples to hypotheses."""

    frames: int
    bytes: int


class Tokenizer(Hashable, Protocol):
    """Tokens from text, text from tokens, and where words begin."""

    @property
    def pieces(self) -> tuple[str, ...]:
        """The text of each token."""

    def encode(self, text: str) -> list[int]:
        """The tokens of a text. Raises InvalidRequest where it cannot be written in them."""

    def decode(self, ids: Sequence[int]) -> str:
        """The text of tokens. Raises IndexError outside the vocabulary."""

    def words(self, tokens: Sequence[int], language: str | None = None) -> "list[TokenSpan]":
        """The words that tokens spell, in order; tokens that spell none are in no span."""


WIDE = re.compile("[\u2e80-\u9fff\ua960-\ua97f\uac00-\ud7ff\uf900-\ufaff\uff00-\uffef\U00020000-\U0003ffff]")
"""Han, Kana, Hangul and full-width forms: written without spaces around them."""


def is_wide(letter: str) -> bool:
    """Whether a text begins with a character of `WIDE`."""
    return bool(WIDE.match(letter))


@dataclass(frozen=True, slots=True)
class TokenSpan:
    """A word: its text, and the half-open range of its tokens."""

    text: str
    first: int
    last: int


class WordPlace(NamedTuple):
    """When a word is spoken, in seconds, and how probable both times are."""

    start: float
    end: float
    share: float


class Encoded(Protocol):
    """Encoder frames of a batch of utterances."""

    @property
    def frames(self) -> "mx.array":
        """[B, T, d_model] in the model's dtype."""

    @property
    def lengths(self) -> NDArray[np.int32]:
        """[B], valid frames, 0 to T."""


class SpeechModel(Protocol):
    """One loaded model. It belongs to the thread that loaded it."""

    @property
    def info(self) -> ModelInfo:
        """Which weights these are."""

    @property
    def capabilities(self) -> Capabilities:
        """What the model can be asked."""

    @property
    def tokenizer(self) -> Tokenizer: ...

    @property
    def heads(self) -> Mapping[HeadName, Any]:
        """What a search drives: a Transducer, a CtcHead, an AttentionHead."""

    def prepare(self, request: DecodeRequest) -> PreparedRequest:
        """Check what is asked and make it ready. Raises InvalidRequest, naming the option."""

    def cost(self, samples: int, beam: int = 1) -> BatchCost:
        """What an utterance of so many 16 kHz samples takes."""

    def encode(self, samples: Sequence[NDArray[np.float32]]) -> Any:  # noqa: ANN401 - the head knows it
        """Utterances, each [N] float32 at 16 kHz in -1 … 1, as the heads take them."""


Ahead = Sequence[NDArray[np.float32] | None]
"""What a front end has made of the utterances of a batch, None where it has not."""


@runtime_checkable
class ModelWithFront(Protocol):
    """A model, part of whose work before the encoder takes no device."""

    @property
    def front(self) -> Callable[[NDArray[np.float32]], NDArray[np.float32] | None] | None:
        """That part, for one utterance, in any thread; it holds nothing of MLX. None where the device does
        it."""

    def encode(
        self,
        samples: Sequence[NDArray[np.float32]],
        att_context: tuple[int, int] | None = None,
        ahead: Ahead | None = None,
    ) -> Any:  # noqa: ANN401 - as `SpeechModel.encode`
        """As `SpeechModel.encode`, with what `front` has made of each already. The same bits as without."""


@runtime_checkable
class LanguageIdentifier(Protocol):
    """A model that says which language is spoken without writing words."""

    def identify_languages(self, samples: Sequence[NDArray[np.float32]]) -> list[ChunkLanguage | None]:
        """The language of each utterance, [N] float32 at 16 kHz; None where nobody speaks."""


@runtime_checkable
class TextAligner(Protocol):
    """A model that tells when given words are spoken, and recognises none."""

    @property
    def info(self) -> ModelInfo: ...

    @property
    def longest_seconds(self) -> float:
        """Of a recording that it can align."""

    def place(self, samples: NDArray[np.float32], words: Sequence[str]) -> list[WordPlace | None]:
        """When each word is spoken in samples [N] at 16 kHz; None for a word that has no sound. Raises
        InvalidRequest for a recording that is longer than the model takes."""


class CacheAwareModel(SpeechModel, Protocol):
    """A model with `Capabilities.att_contexts`."""

    def encode(
        self, samples: Sequence[NDArray[np.float32]], att_context: tuple[int, int] | None = None
    ) -> Encoded:
        """As `SpeechModel.encode`, with one of its attention contexts; None for the default."""


OPTION_NAMES = (
    "language",
    "task",
    "translate_to",
    "timestamps",
    "prompt",
    "hotwords",
    "punctuation",
    "audio_context",
)


def refuse_unsupported(name: str, capabilities: Capabilities, request: DecodeRequest) -> None:
    """Raises InvalidRequest where an option is set that the model `name` does not take."""
    for option in OPTION_NAMES:
        value, default = getattr(request, option), DecodeRequest.model_fields[option].default
        if value != default and option not in capabilities.options:
            takes = ", ".join(sorted(capabilities.options)) or "none"
            raise InvalidRequest(f"{option}: {name} takes no such option; it takes: {takes}")
    if request.candidates and not capabilities.detects:
        raise InvalidRequest(f"language: {name} does not tell languages apart; name one instead of a list")
    asked = [("language", code) for code in (request.pinned, *request.candidates)]
    for option, code in (*asked, ("translate_to", request.translate_to)):
        if code is not None and code not in capabilities.languages:
            known = ", ".join(sorted(capabilities.languages))
            raise InvalidRequest(f"{option}: {name} does not know {code!r}; it knows: {known}")
    if request.task not in capabilities.tasks:
        raise InvalidRequest(
            f"task: {name} cannot {request.task}; it can: {', '.join(sorted(capabilities.tasks))}"
        )


@dataclass(frozen=True)
class ModelFiles:
    """A model's folder, or its single file. `name` is what people know it by."""

    path: Path
    name: str

    @cached_property
    def config(self) -> dict[str, Any]:
        """The folder's config.json; empty where there is none that can be read."""
        try:
            value = json.loads((self.path / "config.json").read_text())
        except (OSError, ValueError, RecursionError):
            return {}
        return value if isinstance(value, dict) else {}


class ModelFamily(Protocol):
    """One architecture and its layouts of files."""

    def matches(self, files: ModelFiles) -> bool:
        """Whether these files are this family's, before anything large is read."""

    def load(self, files: ModelFiles, dtype: "mx.Dtype | None") -> SpeechModel:
        """The model in `dtype`, by default what suits the device. Raises UnknownModel, ModelUnreadable,
        WeightsMismatch."""
