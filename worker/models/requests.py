"""What the engine is asked: the options of a job, with what they name on this machine. Plain Python, for the
process without MLX too."""

from collections.abc import Hashable
from dataclasses import dataclass
from typing import Annotated

from pydantic import Field

from spool.domain.search.fields import SearchFields, UtteranceFields

CONTEXT_TOKENS = 256  # longer than any n-gram and any phrase


@dataclass(frozen=True, slots=True)
class IdentifyLanguage:
    """A step of a model that detects languages (`worker.models.base.LanguageIdentifier`)."""


class SearchOptions(SearchFields):
    """How a batch is searched. A graph is named by its path.

    att_context: of a cache-aware encoder, in frames left and right; None for its default. reader: path of a
    second model, whose attention decoder orders the hypotheses (`worker.decode.attention.second`).
    """

    # As wide as memory allows.
    beam: Annotated[int, Field(ge=1)] = 4
    nbest: Annotated[int, Field(ge=1)] = 1
    att_context: tuple[int, int] | None = None
    reader: str | None = None


class DecodeRequest(UtteranceFields):
    """All that the engine is asked for one utterance. Utterances of equal `search` may share a batch. A
    language model is named by the path of its ARPA file.

    phrases: texts to boost, with the weight `boost`. context: the tokens before the utterance, oldest first,
    from which language model and phrases continue. reader_weight: the weight of the reader in
    `SearchOptions`. step: a step of a diarization model's network or of a live session, or
    `IdentifyLanguage`, instead of words. spell: the words of a text to align, for `prepare`; labels: the
    tokens of these words, whose probability in each frame a CTC head returns. single: the utterance is one
    window and its hypotheses are given as the search found them; nothing is asked again. carries: each chunk
    goes on from what was heard before it, so that a job's chunks are decoded one after another.
    """

    phrases: tuple[str, ...] = ()
    boost: float = 1.0
    context: tuple[int, ...] = ()
    reader_weight: float = 0.0
    step: Hashable = None
    spell: tuple[str, ...] = ()
    labels: tuple[int, ...] = ()
    single: bool = False
    carries: bool = False
    search: SearchOptions = SearchOptions()

    @property
    def pinned(self) -> str | None:
        """The one language that is asked for; None where the model has to choose."""
        return self.language if isinstance(self.language, str) else None

    @property
    def candidates(self) -> tuple[str, ...]:
        """The languages to choose among; empty for all."""
        return self.language if isinstance(self.language, tuple) else ()
