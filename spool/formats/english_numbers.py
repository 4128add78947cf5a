"""English dates, years, sums of money, percentages and times of day, written as readers expect them.

Processes the output of text2num, which converts numbers regardless of what they count ("on may 3rd 19 45",
"25 dollars and 50 cents"). Ambiguous cases stay: `we may first`, `in 19 45` is a year and `19 45` alone is
not, `5 pounds` may be a weight. The cases are those of NeMo's inverse text normalization for English
(`nemo_text_processing/inverse_text_normalization/en`).
"""

import re
from decimal import Decimal

from text_to_num import alpha2digit

_MONTHS = "january|february|march|april|may|june|july|august|september|october|november|december"
_SMALL = {"one": "1", "two": "2", "first": "1", "second": "2"}
"""The numbers that text2num leaves as words."""
_YEAR = r"(?P<{0}>(?:1[5-9]|20) (?:\d\d|oh [1-9])|1[5-9]\d\d|20\d\d)"
_BEFORE_YEARS = (
    "in|since|until|till|by|from|before|after|during|around|of|"
    "year|summer|winter|spring|autumn|fall|early|late"
)
_BEFORE_DATES = "on|since|until|till|by|from|before|after|of"
_DAY = r"(?P<day>[12]?\d|3[01])(?:st|nd|rd|th)"
_DAY_WORD = r"(?P<word>first|second)"
_OPTIONAL_YEAR = rf"(?:,? {_YEAR.format('year')})?"
_SIGNS = {"dollar": "$", "dollars": "$", "euro": "€", "euros": "€"}
_NUMBER = r"(?P<number>\d+(?:\.\d+)?|one|two)"

_ROUND = re.compile(r"\b(\d[\d,]*(?:\.\d+)?) (1000000|1000000000)\b")
_DAY_OF_MONTH = re.compile(
    rf"\b(?:the )?(?:{_DAY}|{_DAY_WORD}) of (?P<month>{_MONTHS})\b{_OPTIONAL_YEAR}", re.IGNORECASE
)
_MONTH_DAY = re.compile(rf"\b(?P<month>{_MONTHS}) (?:the )?{_DAY}\b{_OPTIONAL_YEAR}", re.IGNORECASE)
_MONTH_DAY_YEAR = re.compile(
    rf"\b(?P<month>{_MONTHS}) (?:the )?(?:(?P<day>[12]?\d|3[01])|{_DAY_WORD}),? {_YEAR.format('year')}\b",
    re.IGNORECASE,
)
_MONTH_WORD = re.compile(
    rf"\b(?P<before>(?:{_BEFORE_DATES}) )(?P<month>{_MONTHS}) (?:the )?{_DAY_WORD}\b(?! of)", re.IGNORECASE
)
_MONTH_YEAR = re.compile(rf"\b(?P<month>{_MONTHS}),? {_YEAR.format('year')}\b", re.IGNORECASE)
_YEARS = re.compile(
    rf"\b(?P<before>{_BEFORE_YEARS}) {_YEAR.format('year')}\b(?:(?P<between> (?:to|and|until|through) )"
    rf"{_YEAR.format('other')}\b)?",
    re.IGNORECASE,
)
_BETWEEN = re.compile(
    rf"\b(?P<before>between) {_YEAR.format('year')}(?P<between> and ){_YEAR.format('other')}\b", re.IGNORECASE
)
_MONEY = re.compile(
    rf"\b{_NUMBER}(?P<size> million| billion)? (?P<unit>dollars?|euros?)\b"
    r"(?: and (?P<cents>\d\d?|one|two) cents?\b)?(?! bill| note)",
    re.IGNORECASE,
)
_POUNDS = re.compile(
    rf"\b{_NUMBER} pounds?(?: sterling\b| and (?P<cents>\d\d?|one|two) (?:pence|penny)\b)", re.IGNORECASE
)
_PERCENT = re.compile(rf"\b{_NUMBER} per ?cent\b", re.IGNORECASE)
_TIME = re.compile(
    r"\b(?P<before>(?:at|by|until|till|from|to|before|after|around|about) )?"
    r"(?P<hour>1[0-2]|[1-9]|one|two)(?: (?P<minute>[0-5]\d|oh [1-9]))? (?P<half>[ap])(?P<gap>\. ?| ?)m\b\.?",
    re.IGNORECASE,
)


def write_english_numbers(text: str) -> str:
    """The text with numbers as digits, and dates, years, money, percentages and times of day as written."""
    text = _ROUND.sub(lambda match: f"{match[1]} {_large(match[2])}", alpha2digit(text, "en"))
    text = _DAY_OF_MONTH.sub(lambda match: _date(match, "{day} {month}", " "), text)
    text = _MONTH_DAY.sub(lambda match: _date(match, "{month} {day}", ", "), text)
    text = _MONTH_DAY_YEAR.sub(lambda match: _date(match, "{month} {day}", ", "), text)
    text = _MONTH_WORD.sub(lambda match: match["before"] + _date(match, "{month} {day}", ", "), text)
    text = _MONTH_YEAR.sub(lambda match: f"{match['month'].capitalize()} {_year(match['year'])}", text)
    text = _BETWEEN.sub(_years, _YEARS.sub(_years, text))
    text = _POUNDS.sub(lambda match: _money(match, "£"), text)
    text = _MONEY.sub(lambda match: _money(match, _SIGNS[match["unit"].lower()]), text)
    text = _PERCENT.sub(lambda match: f"{_digits(match['number'])}%", text)
    return _TIME.sub(_time, text)


def _digits(number: str) -> str:
    return _SMALL.get(number.lower(), number)


def _large(number: str) -> str:
    return {"1000000": "million", "1000000000": "billion"}[number]


def _year(text: str) -> str:
    return text.lower().replace(" oh ", "0").replace(" ", "")


def _date(match: re.Match[str], form: str, before_year: str) -> str:
    groups = match.groupdict()
    day = groups.get("day") or _digits(groups["word"])
    if int(day) == 0:
        return match[0]
    date = form.format(day=day, month=groups["month"].capitalize())
    return f"{date}{before_year}{_year(groups['year'])}" if groups.get("year") else date


def _years(match: re.Match[str]) -> str:
    first = f"{match['before']} {_year(match['year'])}"
    return f"{first}{match['between']}{_year(match['other'])}" if match["other"] else first


def _money(match: re.Match[str], sign: str) -> str:
    number, cents = Decimal(_digits(match["number"])), match["cents"]
    if size := match.groupdict().get("size"):
        return f"{sign}{number}{size}"
    if cents is not None and number == int(number):
        return f"{sign}{int(number):,}.{int(_digits(cents)):02}"
    for size, name in ((10**9, "billion"), (10**6, "million")):
        if cents is None and number >= size and number % (size // 10) == 0:
            return f"{sign}{(number / size).normalize():f} {name}"
    return f"{sign}{number:,}" + (f" and {cents} cents" if cents is not None else "")


def _time(match: re.Match[str]) -> str:
    minute, before = match["minute"], match["before"] or ""
    if not (before or minute or match["gap"]):
        return match[0]  # "which one am I"
    clock = _digits(match["hour"]) + (f":{minute.lower().replace('oh ', '0')}" if minute else "")
    return f"{before}{clock} {match['half'].lower()}.m."
