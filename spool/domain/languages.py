"""How a recording's language is asked for: not at all, by its code, or by codes to choose among. Pure."""

from typing import Annotated

from pydantic import BeforeValidator, Field


def parse_language(value: object) -> object:
    """One form for each choice of languages: None for `auto`, a code, or codes in order, each once."""
    if value == "auto":
        return None
    if isinstance(value, list | tuple | set) and all(isinstance(code, str) for code in value):
        codes = tuple(sorted(set(value)))
        return codes[0] if len(codes) == 1 else codes
    return value


def language_of_text(text: str | None) -> str | tuple[str, ...] | None:
    """What a command line's `auto`, `de` or `de,fr` asks for."""
    codes = tuple(sorted({code.strip() for code in (text or "auto").split(",") if code.strip()}))
    if codes in ((), ("auto",)):
        return None
    return codes[0] if len(codes) == 1 else codes


LanguageCode = Annotated[str, Field(pattern="^[a-z]{2,3}$")]
Language = Annotated[
    LanguageCode | Annotated[tuple[LanguageCode, ...], Field(min_length=2, max_length=20)] | None,
    BeforeValidator(parse_language),
]
