from __future__ import annotations

import pytest

from gridbot_policies.classad import ERROR, UNDEFINED, ParseError, evaluate, parse
from gridbot_policies.classad.values import AbsTime, RelTime

# 2020-01-02 03:04:05 UTC.
NOW = 1577934245.6

# Each value is what HTCondor's library gives in UTC.
CASES: dict[str, object] = {
    # making times
    "absTime(1577934245, 3600)": AbsTime(1577934245, 3600),
    "absTime(7.9, relTime(60))": AbsTime(7, 60),
    "absTime(relTime(-1.5))": AbsTime(-1, 0),
    "absTime(3000000000)": AbsTime(-1294967296, 0),
    "absTime(3e9)": AbsTime(-2147483648, 0),
    "absTime(absTime(5), 7)": AbsTime(5, 0),
    'absTime(strcat("2004", ""))': "2004",
    "absTime(undefined)": UNDEFINED,
    'absTime(undefined, "x")': ERROR,
    "absTime(true)": ERROR,
    'absTime("2020-01-02T03:04:05+05:30")': AbsTime(1577914445, 19800),
    'absTime("20200102 030405-0800")': AbsTime(1577963045, -28800),
    'absTime("2020/01/02 Z")': AbsTime(1577923200, 0),
    'absTime("x2004y01z25")': AbsTime(1074988800, 0),
    'absTime("2004-02")': AbsTime(1075507200, 0),
    'absTime("2004")': AbsTime(1072828800, 0),
    'absTime("2019-13-40 25:61:61")': AbsTime(1581300121, 0),
    'absTime("7abc")': AbsTime(-61946380800, 0),
    "relTime(1.75)": RelTime(1.75),
    "relTime(3000000000)": RelTime(-1294967296.0),
    "relTime(absTime(5))": RelTime(5.0),
    "relTime(undefined)": UNDEFINED,
    "relTime(true)": ERROR,
    # parts
    "getYear(absTime(1577934245, 86400))": 2020,
    "getDayOfWeek(absTime(1577934245))": 4,
    "getDayOfYear(absTime(1577934245))": 1,
    "getHours(absTime(1577934245, 7200))": 3,
    "getDays(relTime(-93784.75))": -1,
    "getMinutes(relTime(93784))": 3,
    "getYear(relTime(5))": ERROR,
    "getDays(absTime(5))": ERROR,
    "splitTime(absTime(1577934245, 19800)).Hours": 8,
    "splitTime(1577934245).Type": "AbsoluteTime",
    "splitTime(5000000000).Year": 2128,
    "splitTime(5e9).Year": 1901,
    "splitTime(relTime(-93784.75)).Seconds": 4.75,
    "splitTime(relTime(-0.5)).Seconds": -0.5,
    "splitTime(undefined)": UNDEFINED,
    "splitTime([Year = 2020])": ERROR,
    # texts
    "formatTime(1577934245)": "Thu Jan  2 03:04:05 2020",
    'formatTime(absTime(1577934245, 3600), "%H %z %Z %s")': "04 +0000 UTC 1577937845",
    'formatTime(splitTime(1577934245), "%F %T")': "2020-01-02 03:04:05",
    'formatTime([Month = 2; Day = 30; Year = 2020], "%F %j %a")': "2020-02-30 061 Sun",
    'formatTime([a = 1], "%c %j")': "Sun Jan  0 00:00:00 1900 000",
    'formatTime(1577934245, "%A %B %d/%m/%y %e %k %l %I %M %S %p %P %n%t%%")': (
        "Thursday January 02/01/20  2  3  3 03 04 05 AM am \n\t%"
    ),
    'formatTime(1577934245, "%C %G %g %V %U %W %u %w %j %h %D %r %R %x %X")': (
        "20 2020 20 01 00 00 4 4 002 Jan 01/02/20 03:04:05 AM 03:04 01/02/20 03:04:05"
    ),
    'formatTime(1577934245, "%-d %_H %5Y %^a %#Z %04d %q %")': "2  3 02020 THU utc 0002 %q %",
    "formatTime(relTime(5))": ERROR,
    "formatTime(5, 5)": ERROR,
    "interval(93784)": "1+02:03:04",
    "interval(-3600)": "-1:00:00",
    'interval("61")': "1:01",
    "interval(5000000000)": "8160+02:25:04",
    "interval(undefined)": ERROR,
    # the clock takes no arguments
    "time(1)": ERROR,
    "currentTime(1)": ERROR,
}


@pytest.mark.parametrize("text", CASES)
def test_functions_of_time_give_htcondors_values(text: str) -> None:
    result = evaluate(parse(text), now=NOW)
    assert (result, type(result)) == (CASES[text], type(CASES[text]))


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("time()", 1577934245),
        ("currentTime()", AbsTime(1577934245, 0)),
        ("absTime()", AbsTime(1577934245, 0)),
        ("dayTime()", RelTime(11045.0)),
        ('formatTime() == "Thu Jan  2 03:04:05 2020"', True),
    ],
)
def test_the_clock_is_the_one_that_the_evaluation_was_given(text: str, value: object) -> None:
    assert evaluate(parse(text), now=NOW) == value
    assert evaluate(parse(text)) in (UNDEFINED, ERROR)


def test_the_calendar_is_utc_everywhere() -> None:
    assert evaluate(parse("timezoneOffset()")) == RelTime(0.0)


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("1+02:03:04.5", 93784.5),
        ("-1:00", -60.0),
        ("1d2h3m4s", 93784.0),
        ("5m", 300.0),
        (" 7.9 ", 7.9),
        ("", 0.0),
    ],
)
def test_a_span_that_is_written_out_is_a_span(text: str, seconds: float) -> None:
    # HTCondor gives a real here, which is a mistake: the sum with a time is then an error.
    assert evaluate(parse(f'relTime("{text}")')) == RelTime(seconds)
    assert evaluate(parse(f'absTime(0) + relTime("{text}")')) == AbsTime(int(seconds), 0)


@pytest.mark.parametrize(
    "text",
    [
        'absTime("")',
        'absTime("123")',
        'absTime("2020-01-02T03:04:05 7")',
        'absTime("1969-12-31T23:59:59Z")',
        'relTime("abc")',
        'relTime("1 2")',
        'relTime("1:2:3:4")',
    ],
)
def test_a_time_that_cannot_be_read_is_a_mistake_in_the_text(text: str) -> None:
    with pytest.raises(ParseError, match=r'expected a (time|span of time) like "'):
        parse(text)


@pytest.mark.parametrize(
    "text",
    [
        "getYear(absTime(0) + relTime(1e12))",
        "splitTime(9223372036854775807)",
        "formatTime(-9223372036854775807)",
        "formatTime([Year = 99999])",
        "formatTime([Month = 13])",
        "formatTime([Hours = 24])",
        'string(relTime(real("nan")))',
    ],
)
def test_a_time_that_no_calendar_has_is_an_error_instead_of_garbage(text: str) -> None:
    assert evaluate(parse(text)) is ERROR
