"""What Qwen3-ASR says: the language, and behind `<asr_text>` the text (transformers 5.24.0,
processing_qwen3_asr.py, `_parse_single_output`)."""

import re

from worker.models.attention.repeats import cut_repeats

MARKER = "<asr_text>"
TURN = "assistant\n"
_NAMES = """ar Arabic yue Cantonese zh Chinese cs Czech da Danish nl Dutch en English fil Filipino fi Finnish
fr French de German el Greek hi Hindi hu Hungarian id Indonesian it Italian ja Japanese ko Korean
mk Macedonian ms Malay fa Persian pl Polish pt Portuguese ro Romanian ru Russian es Spanish sv Swedish
th Thai tr Turkish vi Vietnamese"""
LANGUAGES: dict[str, str] = dict(re.findall(r"(\w+)\s(\w+)", _NAMES))
CODES = {name.lower(): code for code, name in LANGUAGES.items()}


def parse_output(said: str) -> tuple[str | None, str]:
    """The language that an answer names, whatever it is, and its text."""
    said = said.strip()
    if TURN in said:
        said = said.split(TURN, 1)[1]
    said = cut_repeats(said)
    if MARKER not in said:
        return None, said.strip()
    prefix, text = said.split(MARKER, 1)
    if prefix.strip().lower() == "language none":
        return None, text.strip()
    named = next((line.strip() for line in prefix.splitlines() if line.strip()), "")
    if named.lower().startswith("language "):
        named = named[len("language ") :].strip()
    return named or None, text.strip()
