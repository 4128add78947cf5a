"""What stands before an answer: NeMo's prompt slots, from a job's options or named one by one, as tokens.

    canary     <|startoftranscript|> source task target pnc
    canary2    <|startofcontext|> [context] <|startoftranscript|>
               emotion source target pnc itn timestamp diarize

(nemo.collections.common.prompts.canary and canary2.) A tokenizer that reads a prompt as one text puts its
dummy prefix in front. Knows no network.
"""

import json
import re
from collections.abc import Mapping
from typing import Literal

from spool.errors import InvalidRequest
from worker.models.requests import DecodeRequest
from worker.models.tokenizers.special import SpecialTokens

Format = Literal["canary", "canary2"]
Slots = dict[str, str]

CONTEXT = "decodercontext"
BARE = re.compile(r"^<\|(.*)\|>$")
ORDERS = re.compile(r"<\|[^|]*\|>|<pad>")
ORDER: Mapping[Format, tuple[str, ...]] = {
    "canary": ("source_lang", "task", "target_lang", "pnc"),
    "canary2": (
        CONTEXT,
        "emotion",
        "source_lang",
        "target_lang",
        "pnc",
        "itn",
        "timestamp",
        "diarize",
    ),
}
DEFAULTS: Mapping[Format, Slots] = {
    "canary": {"source_lang": "en", "task": "asr", "target_lang": "en", "pnc": "yes"},
    "canary2": {
        CONTEXT: "",
        "emotion": "emo:undefined",
        "source_lang": "en",
        "target_lang": "en",
        "pnc": "yes",
        "itn": "no",
        "timestamp": "no",
        "diarize": "no",
    },
}
SWITCHES = frozenset({"pnc", "itn", "timestamp", "diarize"})
YES, NO = frozenset({"yes", "true", "1"}), frozenset({"no", "false", "0"})
TASKS: Mapping[str, str] = {
    "asr": "transcribe",
    "transcribe": "transcribe",
    "ast": "translate",
    "s2t_translation": "translate",
    "translate": "translate",
}
SAME_TARGET = "translate_to: the recording is in {0!r} already; name another language"


def prompt_slots(
    form: Format, defaults: Mapping[str, str], options: DecodeRequest, *, stamped: bool
) -> Slots:
    """The slots of a job's options. defaults: the model's own; stamped: whether times are asked for among the
    tokens. A `prompt` that is a JSON object names slots, which stand before all options; any other text is
    the context. Raises InvalidRequest, naming the option."""
    known = ORDER[form]
    slots = {**DEFAULTS[form], **{key: value for key, value in defaults.items() if key in known}}
    if options.pinned is not None:
        slots["source_lang"] = slots["target_lang"] = options.pinned
    if options.task == "translate" or options.translate_to is not None:
        slots["target_lang"] = options.translate_to or "en"
        if _bare(slots["target_lang"]) == _bare(slots["source_lang"]):
            raise InvalidRequest(SAME_TARGET.format(_bare(slots["source_lang"])))
        if "task" in known:
            slots["task"] = "translate"
    if not options.punctuation:
        slots["pnc"] = "no"
    if stamped:
        slots["timestamp"] = "yes"
    named = name_slots(form, options.prompt)
    if named is not None:
        return slots | named
    if options.prompt.strip():
        if CONTEXT not in known:
            raise InvalidRequest("prompt: this model takes no context, only a JSON object of prompt slots")
        # Text that spells a special token is text, not an order to the model.
        slots[CONTEXT] = ORDERS.sub(" ", options.prompt).strip()
    return slots


def name_slots(form: Format, prompt: str) -> Slots | None:
    """The slots that a prompt names as a JSON object; None where it is other text. Raises InvalidRequest."""
    if not prompt.lstrip().startswith("{"):
        return None
    try:
        named = json.loads(prompt)
    except (ValueError, RecursionError) as cause:
        raise InvalidRequest(f"prompt: begins like JSON, but is not: {cause}") from cause
    slots = {}
    for key, value in named.items():
        if key not in (*ORDER[form], "prompt_language"):
            takes = ", ".join(ORDER[form])
            raise InvalidRequest(f"prompt: there is no slot {key!r}; this model takes: {takes}")
        if not isinstance(value, str | int):
            raise InvalidRequest(f"prompt: the slot {key} is {value!r}; a text is needed")
        if key in ORDER[form]:
            slots[key] = str(value)
    return slots


def prompt_tokens(form: Format, slots: Mapping[str, str], tokenizer: SpecialTokens) -> tuple[int, ...]:
    """The prompt's tokens. Raises InvalidRequest where a slot's value has none."""
    pieces = {key: _piece(form, key, slots[key], tokenizer) for key in ORDER[form] if key != CONTEXT}
    context = slots.get(CONTEXT, "") if form == "canary2" else ""
    before = ["<|startofcontext|>"] if form == "canary2" else []
    after = ["<|startoftranscript|>", *pieces.values()]
    if tokenizer.reads_prompts:
        return tuple(tokenizer.encode("".join([*before, context, *after])))
    language = _bare(slots["target_lang"])
    return (
        *(tokenizer.special(piece) for piece in before),
        *(tokenizer.encode(context, language) if context else ()),
        *(tokenizer.special(piece) for piece in after),
    )


def _piece(form: Format, key: str, value: str, tokenizer: SpecialTokens) -> str:
    bare = _bare(value)
    if key == "task":
        if bare not in TASKS:
            raise InvalidRequest(f"prompt: no task {value!r}; it is one of {', '.join(TASKS)}")
        bare = TASKS[bare]
    elif key in SWITCHES:
        lower = bare.lower()
        if lower not in YES | NO | {key, f"no{key}"}:
            raise InvalidRequest(f"prompt: the slot {key} is {value!r}; it is yes or no")
        bare = key if lower in YES | {key} else f"no{key}"
    elif key == "emotion" and not bare.startswith("emo:"):
        bare = f"emo:{bare}"
    piece = f"<|{bare}|>"
    if not tokenizer.has(piece):
        option = {"source_lang": "language", "target_lang": "translate_to"}.get(key, "prompt")
        raise InvalidRequest(f"{option}: the {form} tokenizer has no {piece} for the slot {key}")
    return piece


def _bare(value: str) -> str:
    match = BARE.match(value)
    return match[1] if match else value
