"""What of transformers' `generate()` decides an answer, as a folder's generation_config.json sets it."""

from collections.abc import Mapping
from typing import Any

from spool.errors import ModelUnreadable
from worker.models.artifacts.hub_folder import HubFolder
from worker.models.base_attention import EndRule

GENERATION = "generation_config.json"
UNLIMITED = 1 << 20
TOKENS: Mapping[str, int | None] = {"eos_token_id": 3, "bos_token_id": 4, "decoder_start_token_id": None}
# What it does to logits beyond a search. Nothing of it is computed here, so it must be off.
OFF: Mapping[str, Any] = {
    "suppress_tokens": None,
    "begin_suppress_tokens": None,
    "forced_decoder_ids": None,
    "forced_bos_token_id": None,
    "forced_eos_token_id": None,
    "repetition_penalty": 1.0,
    "no_repeat_ngram_size": 0,
    "min_new_tokens": None,
    "early_stopping": False,
}


class Generation:
    """What ends an answer, what begins a prompt, and how long an answer may be.

    A setting that generation_config.json lacks is that of config.json or of its `section`. Raises
    ModelUnreadable for what is not computed.
    """

    def __init__(self, folder: HubFolder, section: Mapping[str, Any]) -> None:
        for key, off in OFF.items():
            if (value := folder.generation.get(key)) not in (None, off, []):
                raise ModelUnreadable(
                    f"{folder.path / GENERATION}: {key} is {value!r}; this engine computes no such rule"
                )
        layers = (folder.generation, folder.config, section, TOKENS)

        def read(key: str) -> Any:  # noqa: ANN401 - JSON
            return next((layer[key] for layer in layers if layer.get(key) is not None), None)

        ends = read("eos_token_id")
        penalty = folder.generation.get("length_penalty")
        tokens = tuple(map(int, ends)) if isinstance(ends, list) else (int(ends),)
        self.end_rule = EndRule(tokens, "replaced", 1.0 if penalty is None else float(penalty))
        self.start = int(read("bos_token_id") if (start := read("decoder_start_token_id")) is None else start)
        most, length = (folder.generation.get(key) for key in ("max_new_tokens", "max_length"))
        self._most = None if most is None else int(most)
        self._length = None if length is None else int(length)

    def begin(self, prompt: tuple[int, ...]) -> tuple[int, ...]:
        """A prompt as the decoder gets it: behind the token that begins one, unless it has it."""
        return prompt if prompt[0] == self.start else (self.start, *prompt)

    def limit(self, prompt: int) -> int:
        """The most tokens of an answer behind so many; without a setting as many as there are positions."""
        if self._most is not None:
            return self._most
        return UNLIMITED if self._length is None else max(self._length - prompt, 1)
