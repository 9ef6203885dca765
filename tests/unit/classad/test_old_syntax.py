from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest

from gridbot_policies.classad import (
    ParseError,
    Value,
    evaluate,
    parse_definitions,
    parse_old,
    record_of,
    unparse,
    unparse_old,
)
from gridbot_policies.classad.nodes import Attribute, RecordNode
from gridbot_policies.classad.values import ListValue, Record


def values(text: str) -> dict[str, Value]:
    ad = record_of(RecordNode(parse_old(text)))
    return {name: evaluate(Attribute(name), ad) for name in ad.names}


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("A = 1\nB = A + 1\n", {"A": 1, "B": 2}),
        ("# comment\n\n  A = 1\n\t# another\n", {"A": 1}),
        ("A=5\r\nB = 6 \r\n", {"A": 5, "B": 6}),
        ("a = 1\nA = 2\n", {"a": 2}),
        (r'A = "c:\new\table"', {"A": r"c:\new\table"}),
        (r'A = "say \"hi\""', {"A": 'say "hi"'}),
        ('A = "dir\\"\nB = 1', {"A": "dir\\", "B": 1}),
        ('A = "dir\\"\r\nB = 1', {"A": "dir\\", "B": 1}),
        (r'A = regexp("a\.b", "axb")', {"A": False}),
        (r'A = [x = "q\n"].x', {"A": r"q\n"}),
        ("A = 1 + 1 // comment", {"A": 2}),
        ("A = 1 /* here */ + 2", {"A": 3}),
        ("A = 1 # ignored", {"A": 1}),
        ("A = 1 2 3", {"A": 1}),
        ('A = 1 "unfinished', {"A": 1}),
        ('A = "x" "y"', {"A": "x"}),
        ("A = 1; B = 2", {"A": 1}),
        ("A = 1)", {"A": 1}),
        ("true = 3\nB.c = 4", {"true": 3, "B.c": 4}),
        ("A\t=\t1", {"A\t": 1}),
        ("", {}),
    ],
)
def test_a_line_is_an_attribute_as_htcondor_reads_it(text: str, expected: dict[str, Any]) -> None:
    assert values(text) == expected


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("A = 1\nB\n", "line 2, column 1: expected Name = expression, found 'B'"),
        ("A = 1\n = 3", "line 2, column 2: expected Name = expression, found '= 3'"),
        ("A = 1\nB = 2 +\nC = 3", "line 2, column 8: expected an expression"),
        ("A = (1\n+ 2)", "line 1, column 7: expected ')', found the end of the line"),
        ('A = "x', "line 1, column 5: expected the string to end with \""),
        ('A = "x\\" ', "line 1, column 5: expected the string to end with \""),
        ("A == 1", "line 1, column 4: expected an expression, found '='"),
        ("A = 010", "line 1, column 5: expected an integer without leading zeros"),
        ("***", "expected Name = expression"),
        ("A = # 1", "line 1, column 5: expected an expression or an operator, found '#'"),
        ("A = 1\n" * 20_000, "expected a text of at most 65536 bytes"),
    ],
)  # fmt: skip
def test_a_line_that_htcondor_refuses_is_an_error_with_its_place(text: str, message: str) -> None:
    with pytest.raises(ParseError) as caught:
        parse_old(text)
    assert message in str(caught.value)


def test_an_ad_is_written_as_htcondors_tools_write_it() -> None:
    text = r"""[ bb = 1; a = "x\"y\\z"; c = {1, "q\\d"}; d = x is b; g = [z = 1; yy = 2.5];
      o = regexp("a\\.b", x); h = 1.5; 'a b' = 'c d'; t = absTime("2020-01-01") ]"""
    assert unparse_old(RecordNode(parse_definitions(text))).splitlines() == [
        r'a = "x\"y\z"',
        r'c = { 1,"q\d" }',
        "d = x =?= b",
        "g = [ z = 1; yy = 2.5 ]",
        "h = 1.5",
        r'o = regexp("a\.b",x)',
        't = absTime("2020-01-01T00:00:00-00:00")',
        "bb = 1",
        "a b = 'c d'",
    ]


@pytest.mark.parametrize(
    "text",
    [
        r'[ A = "two\nlines" ]',
        r'[ A = strcat("dir\\", "x") ]',
        "[ 'a=b' = 1 ]",
        "[ ' a' = 1 ]",
        "[ '#a' = 1 ]",
    ],
)
def test_what_the_old_syntax_cannot_say_is_not_written(text: str) -> None:
    with pytest.raises(ValueError, match="the old syntax cannot write"):
        unparse_old(RecordNode(parse_definitions(text)))


CORPUS = os.environ.get("GRIDBOT_CLASSAD_CORPUS", "")


@pytest.mark.skipif(not CORPUS, reason="set GRIDBOT_CLASSAD_CORPUS to the folder of the corpus")
def test_every_ad_of_the_corpus_reads_as_in_htcondor_and_survives_writing() -> None:
    for case in json.loads(Path(CORPUS, "corpus_old.json").read_text("utf-8")):
        ad = RecordNode(parse_old(case["text"]))
        assert plain(record_of(ad)) == case["expected"], case["id"]
        if "\t" not in case["text"].strip():  # a tab that belongs to a name
            assert plain(record_of(RecordNode(parse_old(unparse_old(ad))))) == case["expected"]


def plain(value: Value) -> dict[str, Any]:
    match value:
        case Record():
            named = {name: plain(evaluate(Attribute(name), value)) for name in value.names}
            return {"type": "classad", "value": named}
        case ListValue():
            return {"type": "list", "value": [plain(item.value) for item in value.items]}  # type: ignore[union-attr]  # constants
        case bool() | int() | str():
            kinds = {bool: "bool", int: "int", str: "string"}
            return {"type": kinds[type(value)], "value": value}
        case float():
            return {"type": "real", "value": repr(value)}
        case _:
            return {"type": unparse(value)}
