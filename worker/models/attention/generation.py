"""What of transformers' `generate()` decides an answer, as a folder's generation_config.json sets it."""

from collections.abc import Mapping
from typing import Any

from spool.errors import ModelUnreadable
from worker.models.artifacts.hub_folder import CONFIG, HubFolder
from worker.models.base_attention import EndRule
from worker.models.configuration import require_number, require_size, require_tokens

GENERATION = "generation_config.json"
UNLIMITED = 1 << 20
TOKENS: Mapping[str, int] = {"eos_token_id": 3, "bos_token_id": 4}
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
    ModelUnreadable for what is not computed or none of the model's `rows` tokens.
    """

    def __init__(self, folder: HubFolder, section: Mapping[str, Any], rows: int) -> None:
        for key, off in OFF.items():
            if (value := folder.generation.get(key)) not in (None, off, []):
                raise ModelUnreadable(
                    f"{folder.path / GENERATION}: {key} is {value!r}; this engine computes no such rule"
                )
        generation = str(folder.path / GENERATION)
        places: list[tuple[str, Mapping[str, Any]]]
        places = [(GENERATION, folder.generation), (CONFIG, folder.config), (CONFIG, section)]

        def read(key: str) -> tuple[int, ...]:
            name, layer = next((each for each in places if each[1].get(key) is not None), (CONFIG, TOKENS))
            tokens = require_tokens(f"{folder.path / name}: {key}", layer[key])
            if max(tokens) >= rows:
                raise ModelUnreadable(
                    f"{folder.path / name}: {key} is {max(tokens)}, but the model has {rows} tokens"
                )
            return tokens

        penalty = folder.generation.get("length_penalty")
        self.end_rule = EndRule(
            read("eos_token_id"),
            "replaced",
            1.0
            if penalty is None
            else require_number(f"{generation}: length_penalty", penalty, least=-100.0),
        )
        begins = any(layer.get("decoder_start_token_id") is not None for _, layer in places)
        self.start = read("decoder_start_token_id" if begins else "bos_token_id")[0]
        self._most, self._length = (
            None if value is None else require_size(f"{generation}: {key}", value)
            for key in ("max_new_tokens", "max_length")
            for value in (folder.generation.get(key),)
        )

    def begin(self, prompt: tuple[int, ...]) -> tuple[int, ...]:
        """A prompt as the decoder gets it: behind the token that begins one, unless it has it."""
        return prompt if prompt[0] == self.start else (self.start, *prompt)

    def limit(self, prompt: int) -> int:
        """The most tokens of an answer behind so many; without a setting as many as there are positions."""
        if self._most is not None:
            return self._most
        return UNLIMITED if self._length is None else max(self._length - prompt, 1)
