"""Where words of a transcript have a space between them, by the scripts that meet there. Pure."""

import re
from collections.abc import Iterable

WIDE = "\u3000-\u30ff\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff\uff00-\uffef\U00020000-\U0003ffff"
"""Han, Kana, their punctuation and full-width forms, as a range of a regular expression."""
CLUSTERED = "\u0e00-\u0eff\u1000-\u109f\u1780-\u17ff"
"""Thai, Lao, Burmese and Khmer."""

_WIDE = re.compile(f"[{WIDE}]")
_CLUSTERED = re.compile(f"[{CLUSTERED}]")
_UNSPACED = re.compile(f"[{WIDE}{CLUSTERED}]")


def is_apart(before: str, after: str) -> bool:
    """Whether a space separates two words: not between two of a script that is written without spaces, and
    between Chinese or Japanese and another script only where letters meet."""
    last, first = before[-1:], after[:1]
    wide = bool(_WIDE.match(last)), bool(_WIDE.match(first))
    if any(wide):
        return not all(wide) and last.isalpha() and first.isalpha()
    return not (_CLUSTERED.match(last) and _CLUSTERED.match(first))


def join_words(texts: Iterable[str]) -> str:
    """The text of words in order."""
    words = list(filter(None, texts))
    spaced = " ".join(words)
    if not _UNSPACED.search(spaced):
        return spaced
    parts: list[str] = []
    for text in words:
        if parts and is_apart(parts[-1], text):
            parts.append(" ")
        parts.append(text)
    return "".join(parts)
