import pytest
from hypothesis import given
from hypothesis import strategies as st

from spool.formats import write_english_numbers

CASES = {
    # dates
    "on may third nineteen forty five it ended": "on May 3, 1945 it ended",
    "on the third of may nineteen forty-five": "on 3 May 1945",
    "the twenty first of june": "21 June",
    "june second, nineteen eighty four": "June 2, 1984",
    "on march first we met": "on March 1 we met",
    "december twenty fifth": "December 25",
    "may three nineteen oh five": "May 3, 1905",
    "in august nineteen fourteen": "in August 1914",
    "the first of january two thousand and five": "1 January 2005",
    # years
    "in nineteen forty five we left": "in 1945 we left",
    "from nineteen thirty nine to nineteen forty five": "from 1939 to 1945",
    "between nineteen oh five and nineteen twelve": "between 1905 and 1912",
    "the summer of twenty twenty": "the summer of 2020",
    "since two thousand and five": "since 2005",
    # money
    "twenty five dollars and fifty cents": "$25.50",
    "one dollar": "$1",
    "twelve hundred dollars": "$1,200",
    "five million dollars": "$5 million",
    "two point five million dollars": "$2.5 million",
    "he has 5 million": "he has 5 million",
    "they paid 5 million dollars": "they paid $5 million",
    "a loan of two point five million": "a loan of 2.5 million",
    "forty euros": "€40",
    "five pounds and twenty pence": "£5.20",
    # shares and times of day
    "three point five per cent of them": "3.5% of them",
    "one percent": "1%",
    "at three thirty p m sharp": "at 3:30 p.m. sharp",
    "by seven p.m.": "by 7 p.m.",
    "at two oh five am": "at 2:05 a.m.",
    "twenty five houses": "25 houses",
}
STAYS = {
    "we may first ask": "we may first ask",
    "you may second that": "you may second that",
    "march second behind him": "march second behind him",
    "rooms nineteen forty": "rooms 19 40",
    "five pounds of flour": "5 pounds of flour",
    "a twenty dollar bill": "a 20 dollar bill",
    "fifty cents": "50 cents",
    "the second one of us": "the second one of us",
    "half past three": "half past 3",
    "on May 3rd, 1945, he paid $25": "on May 3, 1945, he paid $25",
    "I am one": "I am one",
    "which one am I": "which one am I",
}
PLAIN = ["we", "may", "march", "on", "sunday", "of", "dollars", "and", "cents", "in", "percent", "pounds"]
PLAIN += ["summer", "year", "a", "p", "m", "the", "am", "pm"]


@pytest.mark.parametrize(("spoken", "written"), [*CASES.items(), *STAYS.items()])
def test_what_is_written(spoken: str, written: str) -> None:
    assert write_english_numbers(spoken) == written


@given(st.lists(st.sampled_from(PLAIN), max_size=12))
def test_a_text_without_numbers_stays(words: list[str]) -> None:
    assert write_english_numbers(" ".join(words)) == " ".join(words)


@pytest.mark.parametrize("spoken", [*CASES, *STAYS])
def test_what_is_written_stays(spoken: str) -> None:
    once = write_english_numbers(spoken)
    assert write_english_numbers(once) == once
