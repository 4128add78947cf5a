"""Whisper's tokens: what stands behind sot_prev, and which are never speech.

What the ids mean that are no text is `config.SpecialTokens`'.
"""

import tokenizers

from worker.models.artifacts.hub_folder import TOKENIZER, HubFolder
from worker.models.base import is_wide
from worker.models.tokenizers.bytes import ByteTokenizer
from worker.models.whisper.config import MAX_PROMPT, SpecialTokens

# Symbols that stand for sounds or typesetting, never for words (openai-whisper, non_speech_tokens).
SYMBOLS = (
    *'"#()*+/:;<=>@[\\]^_`{|}~「」『』',
    *("<<", ">>", "<<<", ">>>", "--", "---", "-(", "-[", "('", '("', "((", "))", "(((", ")))"),
    *("[[", "]]", "{{", "}}", "♪♪", "♪♪♪"),
)
NOTES = "♩♪♫♬♭♮♯"


class WhisperTokenizer(ByteTokenizer):
    """Text tokens are below `ids.eot`."""

    def __init__(self, tokenizer: tokenizers.Tokenizer, vocabulary: int) -> None:
        self.ids = SpecialTokens(vocabulary)
        super().__init__(tokenizer, self.ids.eot, vocabulary)

    @classmethod
    def from_folder(cls, folder: HubFolder, vocabulary: int) -> "WhisperTokenizer":
        """That of a model of so many tokens. Raises ModelUnreadable where it is missing, broken or of another
        vocabulary."""
        reader = cls(folder.tokenizer, vocabulary)
        # As the file has them: the package numbers them anew where one between them is missing.
        added = folder.optional(TOKENIZER).get("added_tokens", [])
        reader.special = {each["content"]: each["id"] for each in added}
        special = {"<|endoftext|>": reader.ids.eot, "<|startoftranscript|>": reader.ids.sot}
        special |= {"<|transcribe|>": reader.ids.transcribe, "<|notimestamps|>": reader.ids.no_timestamps}
        reader.check(special, str(folder.path / TOKENIZER))
        return reader

    def encode_words(self, text: str) -> list[int]:
        """The text tokens of words as Whisper writes them: behind a space, in scripts that have one."""
        return self.encode(text if is_wide(text) else f" {text}")

    def previous(self, text: str = "", hotwords: str = "") -> list[int]:
        """What stands behind sot_prev, at most 223 tokens: hotwords, then a prompt. What does not fit is cut
        from the start of the prompt, and from the end of the hotwords."""
        favoured, said = (
            self.encode(f" {each.strip()}") if each.strip() else [] for each in (hotwords, text)
        )
        favoured = favoured[:MAX_PROMPT]
        return favoured + said[max(len(said) + len(favoured) - MAX_PROMPT, 0) :]

    def non_speech_tokens(self) -> list[int]:
        """OpenAI's set of tokens that are never speech, special tokens not included."""
        tokens = {self.encode(" -")[0], self.encode(" '")[0]}
        for symbol in (*SYMBOLS, *NOTES):
            for encoded in (self.encode(symbol), self.encode(" " + symbol)):
                if len(encoded) == 1 or symbol in NOTES:
                    tokens.add(encoded[0])
        return sorted(tokens)
