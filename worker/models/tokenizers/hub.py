"""Sentencepiece's BPE as the hub's `tokenizer.json` has it. Knows no prompt and no times."""

from collections.abc import Sequence

import tokenizers

from spool.errors import InvalidRequest, ModelUnreadable
from worker.models.base import TokenSpan, is_wide
from worker.models.tokenizers.pieces import UNKNOWN
from worker.models.tokenizers.special import SpecialTokens

SPACELESS = frozenset({"ja", "zh"})


ROUNDED_TO = 8
PROMPT = (
    *("<|endoftext|>", "<|startofcontext|>", "<|startoftranscript|>", "<|emo:undefined|>"),
    *("<|pnc|>", "<|nopnc|>", "<|noitn|>", "<|notimestamp|>", "<|nodiarize|>"),
)


def prompt_pieces(
    tokenizer: tokenizers.Tokenizer, counted: int, ends: Sequence[int], source: str, trained: frozenset[str]
) -> "HubPieces":
    """The tokens of a model that takes NeMo's prompts. counted: `vocab_size` of config.json, which may round
    the vocabulary up to a multiple of 8. Raises ModelUnreadable where the tokenizer is another model's."""
    size = max(tokenizer.get_vocab(with_added_tokens=True).values()) + 1
    labels = size if counted - ROUNDED_TO < size <= counted else counted
    pieces = HubPieces(tokenizer, labels, counted, source, trained)
    end, *_ = [pieces.special(piece, source) for piece in PROMPT]
    if end not in ends:
        raise ModelUnreadable(
            f"{source}: {PROMPT[0]} is token {end}, but answers end with {', '.join(map(str, ends))} by "
            "eos_token_id: the tokenizer is another model's"
        )
    return pieces


class HubPieces(SpecialTokens):
    """The tokens that are a model's labels, special ones among them."""

    def __init__(
        self,
        tokenizer: tokenizers.Tokenizer,
        size: int,
        counted: int,
        source: str,
        trained: frozenset[str] = frozenset(),
    ) -> None:
        """size: labels; counted: `vocab_size` of config.json; trained: languages that the model knows, of
        those that tokens name. Raises ModelUnreadable where the vocabulary has fewer tokens than labels or
        one that is not counted."""
        pieces = {token: piece for piece, token in tokenizer.get_vocab(with_added_tokens=True).items()}
        lost = next((token for token in range(size) if token not in pieces), None)
        if lost is not None or max(pieces) >= counted:
            wrong = f"a token {max(pieces)}" if lost is None else f"no token {lost}"
            raise ModelUnreadable(
                f"{source}: the tokenizer has {wrong}, but vocab_size in config.json is {counted}: it is "
                "another model's"
            )
        super().__init__([pieces[token] for token in range(size)])
        self._tokenizer = tokenizer
        self._trained = trained
        self.mark(size)
        added = tokenizer.get_added_tokens_decoder().items()
        self._special |= {token for token, each in added if each.special and token < size}

    @property
    def languages(self) -> frozenset[str]:
        return super().languages & self._trained

    def encode(self, text: str, language: str | None = None) -> list[int]:  # noqa: ARG002 - one vocabulary for all
        tokens = list(self._tokenizer.encode(text, add_special_tokens=False).ids)
        if any(token >= len(self.pieces) or self.pieces[token] == UNKNOWN for token in tokens):
            raise InvalidRequest(f"{text!r} holds what the model has no token for")
        return tokens

    def words(self, tokens: Sequence[int], language: str | None = None) -> list[TokenSpan]:
        """As `Tokenizer.words`; in languages that are written without spaces every character stands alone."""
        spans = super().words(tokens, language)
        if language not in SPACELESS:
            return spans
        return [part for span in spans for part in self._characters(tokens, span)]

    def _characters(self, tokens: Sequence[int], span: TokenSpan) -> list[TokenSpan]:
        """A span's tokens, those of wide characters one by one."""
        starts = [span.first]
        for at in range(span.first + 1, span.last):
            before, own = (self.decode(tokens[each : each + 1]).strip() for each in (at - 1, at))
            if is_wide(own) or is_wide(before[-1:]):
                starts.append(at)
        ends = [*starts[1:], span.last]
        parts = (
            TokenSpan(self.decode(tokens[first:last]).strip(), first, last)
            for first, last in zip(starts, ends, strict=True)
        )
        return [part for part in parts if part.text]
