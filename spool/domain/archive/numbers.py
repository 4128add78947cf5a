"""English numbers as they are said and as they are written, for the search: `thirty` and `30`, `nineteen
forty-five` and `1945`. Pure; words are read by text2num.
"""

from collections.abc import Iterator, Sequence
from itertools import product

from text_to_num import text2num

Tokens = tuple[str, ...]

MOST_WAYS = 16
_MOST_WORDS = 12
_LARGEST = 999_999_999
_NAMES = """
zero one two three four five six seven eight nine ten eleven twelve thirteen fourteen fifteen sixteen
seventeen eighteen nineteen twenty thirty forty fifty sixty seventy eighty ninety
"""
_ONES, _TENS = _NAMES.split()[:20], _NAMES.split()[20:]
_LARGE = ((1_000_000, "million"), (1000, "thousand"), (100, "hundred"))


def number_ways(tokens: Tokens) -> tuple[Tokens, ...]:
    """The tokens of a phrase with each number in it as the others may have said or written it; not as it is.
    At most `MOST_WAYS`."""
    parts: list[Sequence[Tokens]] = []
    at = 0
    while at < len(tokens):
        size = length_of_number(tokens[at:]) or 1
        own = tokens[at : at + size]
        value = _value_of(own)
        parts.append([own] if value is None else [own, *(way for way in _ways_of(value) if way != own)])
        at += size
    ways = (tuple(token for part in parts for token in part) for parts in product(*parts))
    return tuple(way for way, _ in zip(ways, range(MOST_WAYS), strict=False) if way != tokens)


def length_of_number(tokens: Tokens) -> int:
    """How many of the first tokens are one number; 0 if none is."""
    sizes = range(min(len(tokens), _MOST_WORDS), 0, -1)
    return next((size for size in sizes if _value_of(tokens[:size]) is not None), 0)


def _value_of(tokens: Tokens) -> int | None:
    if tokens[0].isdecimal() and tokens[0].isascii():
        grouped = len(tokens[0]) <= 3 and all(len(each) == 3 and each.isdecimal() for each in tokens[1:])
        value = int("".join(tokens)) if grouped or len(tokens) == 1 else None
        return value if value is not None and tokens[0] == str(int(tokens[0])) and value <= _LARGEST else None
    if (value := _read(tokens)) is not None:
        return value
    # A year: two numbers of two digits.
    for cut in range(1, len(tokens)):
        century, year = _read(tokens[:cut]), _read(tokens[cut:])
        if century is not None and year is not None and 11 <= century <= 20 and 10 <= year <= 99:
            return 100 * century + year
    return None


def _read(tokens: Tokens) -> int | None:
    if tokens[0] == "a" and tokens[1:2] and tokens[1] in {name for _, name in _LARGE}:
        tokens = ("one", *tokens[1:])
    if "and" in {tokens[0], tokens[-1]} or not all(map(str.isalpha, tokens)):
        return None
    try:
        value = int(text2num(" ".join(tokens), "en"))
    except ValueError:
        return None
    return value if 0 <= value <= _LARGEST else None


def _ways_of(value: int) -> Iterator[Tokens]:
    yield (str(value),)
    if value >= 1000:
        yield tuple(f"{value:,}".split(","))
    words = tuple(_say(value))
    rest = value % 100
    said = [words]
    if value > 100 and rest:
        end = len(tuple(_say(rest)))
        said.append((*words[:-end], "and", *words[-end:]))
    yield from said
    if words[0] == "one" and len(words) > 1:
        yield from (("a", *each[1:]) for each in said)
    if 1100 <= value <= 2099 and rest >= 10:
        yield (*_say(value // 100), *_say(rest))


def _say(value: int) -> Iterator[str]:
    for unit, name in _LARGE:
        if value >= unit:
            yield from (*_say(value // unit), name)
            value %= unit
            if not value:
                return
    if value < len(_ONES):
        yield _ONES[value]
        return
    yield _TENS[value // 10 - 2]
    if value % 10:
        yield _ONES[value % 10]
