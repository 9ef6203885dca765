from dataclasses import dataclass
from datetime import date, time
from decimal import Decimal
from pathlib import Path
from typing import Any, NamedTuple

import numpy
import pandas
import pytest

from gridbot.api.errors import BadInput
from gridbot.api.items import (
    CsvItems,
    LineItems,
    RangeItems,
    carried,
    items_of,
    parse_range,
    survey,
)
from gridbot.api.results import Real


def write(tmp_path: Path, content: str | bytes, name: str = "items.csv") -> Path:
    path = tmp_path / name
    path.write_bytes(content.encode() if isinstance(content, str) else content)
    return path


def rows(path: Path) -> list[dict[str, object]]:
    return [dict(row) for _, row in CsvItems.at(path).rows()]


@pytest.mark.parametrize(
    ("text", "numbers"),
    [("0:3", [0, 1, 2]), ("1:10:4", [1, 5, 9]), ("3:0:-1", [3, 2, 1]), ("-2:0", [-2, -1])],
)
def test_a_range_counts_as_pythons_does(text: str, numbers: list[int]) -> None:
    assert [row["i"] for _, row in parse_range(text).rows()] == numbers


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("5", "'5' is not a range; write A:B or A:B:STEP with whole numbers, such as 0:100"),
        ("a:b", "'a:b' is not a range"),
        ("0:1:2:3", "'0:1:2:3' is not a range"),
        ("0:9:0", "'0:9:0' is not a range"),
        ("5:5", "the range 5:5 is empty; A:B does not include B"),
        ("0:99999999999999999999", "exceeds 64-bit integers"),
    ],
)
def test_a_wrong_range_is_refused(text: str, message: str) -> None:
    with pytest.raises(BadInput, match=message.replace("?", r"\?")):
        parse_range(text)


def test_a_byte_order_mark_crlf_and_quotes_do_not_reach_the_values(tmp_path: Path) -> None:
    path = write(tmp_path, b'\xef\xbb\xbfname,note\r\na,"x, ""y"""\r\n\r\nb,"two\r\nlines"\r\n')
    assert rows(path) == [
        {"name": "a", "note": 'x, "y"'},
        {"name": "b", "note": "two\r\nlines"},
    ]


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("", "empty file; its first line must name the columns"),
        ("a,,c\n", "line 1: column 2 has no name"),
        ("a,b,a\n1,2,3\n", "line 1: two columns are named 'a'"),
        ("a,b\n1,2\n1\n", "line 3: 1 field, but the header names 2 columns"),
        ("a\n1\n2,3\n", "line 3: 2 fields, but the header names 1 column"),
        ("a,b\n", "no items, so the BOT would have no job"),
        ('a\n"never closed\n', "line 2: unexpected end of data"),
        (b"a\n\xff\xfe\n", "not UTF-8 text"),
        ("a\nx\0y\n", "line 2, column a: NUL character"),
    ],
)
def test_a_wrong_table_is_refused_with_its_line(
    tmp_path: Path, content: str | bytes, message: str
) -> None:
    with pytest.raises(BadInput, match=message):
        survey(CsvItems.at(write(tmp_path, content)))


@pytest.mark.parametrize(
    ("values", "kind"),
    [
        (["1", "-2", "0"], "int"),
        (["1", "2.50"], "real"),
        (["007"], "real"),
        (["1e-9", "+3", ".5", "5."], "real"),
        (["9223372036854775808"], "real"),
        (["1e999"], "text"),
        (["nan"], "text"),
        (["1", "x"], "text"),
        (["1", ""], "text"),
        (["1_000"], "text"),
        (["\u0661"], "text"),
    ],
)
def test_a_column_has_the_narrowest_type_that_keeps_it(
    tmp_path: Path, values: list[str], kind: str
) -> None:
    path = write(tmp_path, "v,w\n" + "".join(f"{value},1\n" for value in values))
    assert survey(CsvItems.at(path)).types == {"v": kind, "w": "int"}


def test_a_real_travels_as_it_was_written() -> None:
    assert carried({"v": "0.10", "n": "3"}, {"v": "real", "n": "int"}) == {"v": "0.10", "n": 3}


def test_lines_keep_everything_but_their_end(tmp_path: Path) -> None:
    path = write(tmp_path, b" a b\r\n\n  \nc\rd\nlast", "lines.txt")
    items = LineItems(path)
    assert list(items.rows()) == [(1, {"i": " a b"}), (4, {"i": "c\rd"}), (5, {"i": "last"})]
    assert items.where(4) == f"{path}, line 4"


def test_a_pipe_is_refused_because_it_is_read_twice() -> None:
    with pytest.raises(BadInput, match="/dev/null: not a regular file"):
        survey(LineItems(Path("/dev/null")))


def test_python_values_become_items() -> None:
    assert isinstance(items_of(range(3)), RangeItems)
    assert survey(items_of([0.1, 2])).types == {"i": "real"}
    assert survey(items_of({"a": n, "b": "x"} for n in range(3))).count == 3
    assert survey(items_of(None)).count == 1


class Point(NamedTuple):
    x: int
    y: float


@dataclass
class Run:
    name: str
    path: Path


@pytest.mark.parametrize(
    ("items", "args"),
    [
        (numpy.linspace(0, 1, 3), [{"i": "0.0"}, {"i": "0.5"}, {"i": "1.0"}]),
        (numpy.arange(2), [{"i": 0}, {"i": 1}]),
        ([{"x": numpy.int64(5), "y": numpy.float64(0.25)}], [{"x": 5, "y": "0.25"}]),
        ([True, numpy.bool_(False)], [{"i": "True"}, {"i": "False"}]),
        ([Path("a/b.dat")], [{"i": "a/b.dat"}]),
        ([{"a": None, "b": 1}], [{"a": "", "b": 1}]),
        ((str(n) for n in range(2)), [{"i": 0}, {"i": 1}]),
        ([Point(1, 0.5)], [{"x": 1, "y": "0.5"}]),
        ([Run("a", Path("b"))], [{"name": "a", "path": "b"}]),
        (pandas.Series(["u", "v"]), [{"i": "u"}, {"i": "v"}]),
        (pandas.DataFrame({"n": [1, 2], "x": [0.1, 2.0], "b": [True, False]}),
         [{"n": 1, "x": "0.1", "b": "True"}, {"n": 2, "x": "2.0", "b": "False"}]),
        (pandas.DataFrame({"s": ["u", None]}), [{"s": "u"}, {"s": ""}]),
        (pandas.DataFrame({"n": pandas.array([1, None])}), [{"n": "1"}, {"n": ""}]),
        ([Real("0.10")], [{"i": "0.10"}]),
        ([Decimal("0.10")], [{"i": "0.10"}]),
        ([date(2026, 1, 31), time(18)], [{"i": "2026-01-31"}, {"i": "18:00:00"}]),
        (numpy.array(["2026-01-31", "NaT"], dtype="M8[D]"), [{"i": "2026-01-31"}, {"i": ""}]),
        (numpy.array([(1, 0.5)], dtype=[("x", "i4"), ("y", "f8")]), [{"x": 1, "y": "0.5"}]),
        (pandas.DataFrame({"t": pandas.to_datetime(["2026-01-31", None])}),
         [{"t": "2026-01-31T00:00:00"}, {"t": ""}]),
        (pandas.DataFrame({"c": pandas.Categorical(["u", None]), "n": pandas.Categorical([1, 2])}),
         [{"c": "u", "n": 1}, {"c": "", "n": 2}]),
        (pandas.DataFrame({"x": [1, 2]}, index=pandas.MultiIndex.from_product([["a"], [1, 2]])),
         [{"x": 1}, {"x": 2}]),
    ],
)  # fmt: skip
def test_tables_of_python_are_rows(items: Any, args: list[dict[str, object]]) -> None:
    table = items_of(items)
    types = survey(table).types
    assert [carried(row, types) for _, row in table.rows()] == args


@pytest.mark.parametrize(
    ("items", "message"),
    [
        ([], "items: no items"),
        ([{"a": 1}, {"b": 1}], r"items\[1\] has the names b, items\[0\] has a"),
        ([1, [1]], r"items\[1\]: a list has no names for its values"),
        ([{"x": 1, "y": {}}], r"items\[0\], column y: {}, a dict, is neither"),
        (numpy.eye(2), r"items\[0\]: a ndarray has no names for its values; pass a mapping"),
        (pandas.DataFrame({"x": [1]}).iterrows(), r"items\[0\]: a tuple has no names"),
        (numpy.array(3), "items: a ndarray has no rows"),
        (numpy.array([5], dtype="m8[ns]"), r"items\[0\], column i: .*, a timedelta64, is neither"),
        (
            pandas.DataFrame({"t": pandas.to_timedelta(["1h"])}),
            "column t: .*, a Timedelta, is neither",
        ),
        (
            pandas.DataFrame([[1, 2]], columns=pandas.MultiIndex.from_product([["a"], ["x", "y"]])),
            "items: the columns of the DataFrame have names of 2 levels; give each one name",
        ),
        (["\udc80"], r"items\[0\], column i: .* is no text that UTF-8 can write"),
        ({"x": [1, 2]}, r"items: a dict has no rows; pass a range, a list of values"),
        (b"abc", r"items: a bytes has no rows"),
        (7, r"items: a int has no rows"),
        (pandas.DataFrame([[1, 2]], columns=["x", "x"]), "items: two columns are named 'x'"),
        (pandas.DataFrame({"x": [1.5, None]}), r"items\[1\], column x: nan is not a finite number"),
        ([float("nan")], r"items\[0\], column i: nan is not a finite number"),
        ("file.csv", r"items: a str has no rows; .* or Path\(…\) for a file"),
    ],
)
def test_wrong_python_values_are_refused(items: Any, message: str) -> None:
    with pytest.raises(BadInput, match=message):
        survey(items_of(items))
