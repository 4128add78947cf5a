"""Numbers as English words."""

import re

_ONES = (
    *("zero", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine", "ten", "eleven"),
    *("twelve", "thirteen", "fourteen", "fifteen", "sixteen", "seventeen", "eighteen", "nineteen"),
)
_TENS = ("twenty", "thirty", "forty", "fifty", "sixty", "seventy", "eighty", "ninety")
_SCALES = ((10**9, "billion"), (10**6, "million"), (1000, "thousand"), (100, "hundred"))
_ORDINALS = {
    "one": "first",
    "two": "second",
    "three": "third",
    "five": "fifth",
    "eight": "eighth",
    "nine": "ninth",
    "twelve": "twelfth",
}
_LARGEST = 10**12


def spell_number(token: str) -> list[str]:
    """The words of "1,200", "3.5", "21st", "10:30" or "1995"; digit by digit if it is too long."""
    match = re.fullmatch(r"([0-9][0-9.,:]*)(st|nd|rd|th|s)?", token)
    if match is None:
        return [token]
    digits, ending = match[1].rstrip(".,:"), match[2]
    if ":" in digits:
        return [word for part in digits.split(":") if part.strip("0") for word in spell_number(part)]
    whole, _, fraction = digits.replace(",", "").partition(".")
    words = _whole(whole)
    if fraction:
        words += ["point", *(_ONES[int(digit)] for digit in fraction if digit.isdigit())]
    if ending == "s":
        words[-1] = words[-1][:-1] + "ies" if words[-1].endswith("y") else words[-1] + "s"
    elif ending:
        words[-1] = _ordinal(words[-1])
    return words


def _whole(digits: str) -> list[str]:
    if (len(digits) > 1 and digits.startswith("0")) or int(digits) >= _LARGEST:
        return [_ONES[int(digit)] for digit in digits]
    number = int(digits)
    if len(digits) == 4 and 1100 <= number <= 2099 and number // 100 != 20 and number % 100:
        rest = _cardinal(number % 100)
        return [*_cardinal(number // 100), *(["oh"] if number % 100 < 10 else []), *rest]
    return _cardinal(number)


def _cardinal(number: int) -> list[str]:
    if number < 20:
        return [_ONES[number]]
    if number < 100:
        return [_TENS[number // 10 - 2], *(_cardinal(number % 10) if number % 10 else [])]
    size, name = next(scale for scale in _SCALES if number >= scale[0])
    return [*_cardinal(number // size), name, *(_cardinal(number % size) if number % size else [])]


def _ordinal(word: str) -> str:
    if word in _ORDINALS:
        return _ORDINALS[word]
    return word[:-1] + "ieth" if word.endswith("y") else word + "th"
