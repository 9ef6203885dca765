"""Comparers of contents, against slow and simple ones."""

import io
import json
import math
import re
from fractions import Fraction

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gridbot_server.validators import documents, numbers, text
from gridbot_server.validators.compare import AnswerFile, difference
from gridbot_server.validators.difference import Difference
from gridbot_server.validators.near import NUMBER, near
from gridbot_server.validators.spec import Tolerance, UnknownValidator, parse


def compared(spec: str, one: bytes, other: bytes) -> Difference | None:
    files = [{"out": AnswerFile(str(len(raw)) + raw.hex(), content=raw)} for raw in (one, other)]
    return difference(parse(spec), *files)


def agree(spec: str, one: bytes, other: bytes) -> bool:
    found = compared(spec, one, other) is None
    assert (compared(spec, other, one) is None) == found, "it is symmetric"
    return found


# ------------------------------------------------------------------------------------- numbers

PIECES = st.sampled_from(
    ["1", "-1", "+1", "1.0", "1.0000001", "1.1", "0", "-0.0", "1e3", "1.0D+03", "0x1p3", "inf",
     "NaN", "nan", "9007199254740993", "9007199254740992", "1e999", "a", "x1", "1_000", "=", ".",
     "-", "e5", " ", " ", "  ", "\t", "\n", "\n", "\r\n", "\0", "\0L", "9" * 1001, "é"]
)  # fmt: skip
TEXTS = st.lists(PIECES, max_size=30).map(lambda pieces: "".join(pieces).encode())
TOLERANCES = st.sampled_from(
    [Tolerance(), Tolerance(0.0), Tolerance(0.2), Tolerance(0, 0.1), Tolerance(nan_is_equal=True)]
)


def slowly_near(one: bytes, other: bytes, tolerance: Tolerance) -> bool:
    """A word at a time, by its characters."""
    if len(one) > numbers.LONG or len(other) > numbers.LONG:
        return one == other
    left, right = NUMBER.split(one), NUMBER.split(other)
    if left[::2] != right[::2] or len(left) != len(right):
        return False
    return all(slowly_close(*pair, tolerance) for pair in zip(left[1::2], right[1::2], strict=True))


def slowly_close(one: bytes, other: bytes, tolerance: Tolerance) -> bool:
    values: list[float] = []
    for token in (one.decode().lower(), other.decode().lower()):
        if re.fullmatch(r"[+-]?\d+", token):
            values.append(int(token))
        elif "0x" in token:
            try:
                values.append(float.fromhex(token))
            except OverflowError:
                return one == other
        elif "n" in token:
            values.append(float(token))
        else:
            values.append(float(re.sub("[dq]", "e", token)))
            if math.isinf(values[-1]):
                return one == other
    if any(math.isnan(value) for value in values):
        return tolerance.nan_is_equal and all(math.isnan(value) for value in values)
    if all(isinstance(value, int) for value in values):
        most = Fraction(max(map(abs, values)))
        allowed = max(Fraction(tolerance.abs), Fraction(tolerance.rel) * most)
        if most > 2**53:
            return abs(values[0] - values[1]) <= allowed
    return math.isclose(*values, rel_tol=tolerance.rel, abs_tol=tolerance.abs)


def slowly_agree(one: bytes, other: bytes, tolerance: Tolerance) -> bool:
    blank = rb"[ \t\r\x0b\x0c]+"
    tables = [
        [[word for word in re.split(blank, line) if word] for line in raw.split(b"\n")]
        for raw in (one, other)
    ]
    for table in tables:
        while table and not table[-1]:
            table.pop()
    left, right = tables
    return [len(line) for line in left] == [len(line) for line in right] and all(
        slowly_near(word, counterpart, tolerance)
        for line, others in zip(left, right, strict=True)
        for word, counterpart in zip(line, others, strict=True)
    )


@given(TEXTS, TEXTS, TOLERANCES, st.sampled_from([1, 7, 64, numbers.CHUNK_BYTES]))
def test_numbers_agree_as_a_slow_reader_says_wherever_chunks_end(
    one: bytes, other: bytes, tolerance: Tolerance, chunk: int
) -> None:
    found = numbers.difference(io.BytesIO(one), io.BytesIO(other), tolerance, chunk)
    assert (found is None) == slowly_agree(one, other, tolerance)


@given(TEXTS, st.data(), TOLERANCES, st.sampled_from([1, 7, 64, numbers.CHUNK_BYTES]))
def test_numbers_of_a_text_and_a_changed_copy_agree_as_a_slow_reader_says(
    one: bytes, data: st.DataObject, tolerance: Tolerance, chunk: int
) -> None:
    words = re.split(rb"( )", one)
    at = data.draw(st.integers(0, len(words) - 1))
    words[at] += data.draw(PIECES).encode()
    other = b"".join(words)
    found = numbers.difference(io.BytesIO(one), io.BytesIO(other), tolerance, chunk)
    assert (found is None) == slowly_agree(one, other, tolerance)


NUMBERS = st.one_of(
    st.floats(width=64).map(repr),
    st.integers(-(2**70), 2**70).map(str),
    st.sampled_from(
        ["1.0", "1.0000001", "1.1", "0", "-0.0", "0.000000", "1e3", "1E+3", "+1", ".5", "5.", "007",
         "9007199254740993", "9007199254740992", "18446744073709551617", "1e999", "1e-400",
         "0." + "3" * 998, "0." + "3" * 999, "-", "1-2", "\1", "nan"]
    ),
)  # fmt: skip
GAPS = st.sampled_from([" ", " ", " ", "  ", "\t", "\n", "\n", "\n", "\r\n", " \n ", "\n\n"])
BETWEEN = st.one_of(
    GAPS,
    st.sampled_from(
        [",", ";", ", ", ",\n", "\n,", "\nE=", " E = ", "kJ ", " x", "_ ", " _", "e ", " e", "-",
         " -", " +", ". ", " .", "(", ") (", " 0x", "p", "\0 ", "\nnan ", "\ninf ", "é"]
    ),
)  # fmt: skip


Table = list[tuple[str, str, str, bool]]  # of number, another, what follows, whether they differ


def tables(gaps: st.SearchStrategy[str]) -> st.SearchStrategy[Table]:
    return st.lists(st.tuples(NUMBERS, NUMBERS, gaps, st.booleans()), min_size=1, max_size=40)


@settings(max_examples=800)
@given(st.one_of(tables(GAPS), tables(BETWEEN)), st.integers(0, 3), BETWEEN, TOLERANCES)
def test_numbers_in_tables_and_texts_agree_as_a_slow_reader_says(
    table: Table, unlike: int, gap: str, tolerance: Tolerance
) -> None:
    """The fast paths: numbers of which few differ, in the same places, but perhaps for one."""
    one = "".join(number + between for number, _, between, _ in table) + "\n"
    other = "".join(
        (number if place % 7 or not differs else another)
        + (gap if unlike and place % (5 * unlike) == 4 else between)
        for place, (number, another, between, differs) in enumerate(table)
    )
    left, right = one.encode(), f"{other}\n".encode()
    found = numbers.difference(io.BytesIO(left), io.BytesIO(right), tolerance)
    assert (found is None) == slowly_agree(left, right, tolerance)


@given(
    st.lists(st.floats(-1e6, 1e6), min_size=1, max_size=50),
    st.sampled_from(["%.17g", "%+.9e", "%12.5e", "%.6f"]),
    st.sampled_from([" ", ",", "\n", " kJ\nE=", "), ("]),
    st.sampled_from([Tolerance(1e-6), Tolerance(1e-6, 1e-9), Tolerance(0, 1e-9)]),
)
def test_numbers_that_are_all_slightly_different_agree(
    values: list[float], form: str, between: str, tolerance: Tolerance
) -> None:
    left, right = (
        between.join(form % (value * factor) for value in values).encode()
        for factor in (1, 1 + 3e-7)
    )
    found = numbers.difference(io.BytesIO(left), io.BytesIO(right), tolerance)
    assert (found is None) == slowly_agree(left, right, tolerance)


@pytest.mark.parametrize("chunk", [64, 5000, numbers.CHUNK_BYTES])
def test_the_line_of_a_difference_is_told_in_a_long_table(chunk: int) -> None:
    lines = [f"{number}.125 {number * 3}.5e-3\n" for number in range(9000)]
    one = "".join(lines).encode()
    for at in (0, 4321, 8999):
        changed = [*lines[:at], "1.0e9 7\n", *lines[at + 1 :]]
        near = [line.replace(".125", ".1250000001") for line in changed]
        found = numbers.difference(
            io.BytesIO(one), io.BytesIO("".join(near).encode()), Tolerance(), chunk
        )
        assert found is not None
        assert found.place == f"line {at + 1}"


@given(TEXTS, TEXTS, TOLERANCES)
def test_numbers_are_reflexive_but_for_nan_and_symmetric(
    one: bytes, other: bytes, tolerance: Tolerance
) -> None:
    def differs(first: bytes, second: bytes) -> bool:
        found = numbers.difference(io.BytesIO(first), io.BytesIO(second), tolerance)
        return found is not None

    assert differs(one, other) == differs(other, one)
    if tolerance.nan_is_equal or b"nan" not in one.lower():
        assert not differs(one, one)


@pytest.mark.parametrize(
    ("spec", "one", "other", "equal"),
    [
        ("numbers:rel=1e-6", b"E = 1.0000001 kJ", b"E = 1.0000002 kJ", True),
        ("numbers:rel=1e-6", b"E = 1.00001", b"E = 1.00002", False),
        ("numbers:rel=1e-6", b"E = 1.0", b"F = 1.0", False),
        ("numbers:rel=0,abs=1e-9", b"0 -0.0 1e-10", b"0.0 0 -1e-10", True),
        ("numbers:rel=0", b"9007199254740992", b"9007199254740993", False),
        ("numbers:rel=0", b"1.0D+03 0x1.8p+1", b"1000 3", True),
        ("numbers", b"inf -inf", b"Infinity -INF", True),
        ("numbers", b"inf", b"-inf", False),
        ("numbers", b"inf", b"1e999", False),
        ("numbers", b"1e999", b"2e999", False),
        ("numbers", b"nan", b"nan", False),
        ("numbers:nan=equal", b"nan 1", b"NaN 1", True),
        ("numbers", b"nano 1", b"nano 1", True),
        ("numbers:rel=0.5", b"run-1234abc", b"run-1235abc", False),
        ("numbers:rel=0.5", b"a1 v1.2.3", b"a2 v1.2.3", False),
        ("numbers:rel=0.1", b"(1.00,2.00)", b"(1.01,2.01)", True),
        ("numbers:rel=0.1", b"1.0-2.0", b"1.01-2.01", True),
        ("numbers:rel=0.1", b"%8.3f".replace(b"%8.3f", b"   9.999"), b"  10.000\r\n\n", True),
        ("numbers:rel=0.1", b"1 2", b"12", False),
        ("numbers:rel=0.1", b"1\n2", b"1 2", False),
        ("numbers:rel=0.1", b"1 2", b"1 2 3", False),
        ("text", b"a\nb\n", b"a \t\r\nb", True),
        ("text", b"a\n\n", b"a\n", False),
        ("text", b" a\n", b"a\n", False),
        ("text", b"1.0", b"1.00", False),
        ("json:rel=1e-3", b'{"a": [1, 2.0], "b": null}', b'{"b": null, "a": [1.0001, 2]}', True),
        ("json:rel=1e-3", b'{"a": 1}', b'{"a": 1.1}', False),
        ("json", b'{"a": "1"}', b'{"a": 1}', False),
        ("json", b'{"a": true}', b'{"a": 1}', False),
        ("json", b"[1, 2]", b"[2, 1]", False),
        ("json:ignore=/time", b'{"a": 1, "time": 2}', b'{"a": 1}', True),
        ("json:ignore=/runs/*/time", b'{"runs": [{"time": 1}]}', b'{"runs": [{"time": 2}]}', True),
        ("json:ignore=/time", b'{"x": {"time": 2}}', b'{"x": {"time": 3}}', False),
        ("json:rel=0", b"9007199254740993", b"9007199254740992", False),
        ("json", b"NaN", b"NaN", False),
        ("json:nan=equal", b"NaN", b"NaN", True),
        ("json", b'{"a": 1, "a": 2}', b'{"a": 2}', False),
        ("json", b"not json", b"not json", True),
        ("json", b"not json", b"no json", False),
        ("exact", b"1", b"1.0", False),
    ],
)
def test_a_pair_agrees_as_the_table_in_the_readme_says(
    spec: str, one: bytes, other: bytes, equal: bool
) -> None:
    assert agree(spec, one, other) is equal


@given(st.sampled_from(["text", "exact", "json:nan=equal", "numbers:nan=equal"]), st.binary())
def test_all_bytes_agree_with_themselves(spec: str, raw: bytes) -> None:
    assert compared(spec, raw, raw) is None


LINES = st.lists(st.sampled_from([b"a", b" ", b"\t", b"\r", b"\n", b"b "]), max_size=20).map(
    b"".join
)


@given(LINES, LINES)
def test_texts_agree_as_a_slow_reader_says(one: bytes, other: bytes) -> None:
    def plain(raw: bytes) -> list[bytes]:
        return [line.rstrip(b" \t\r") for line in raw.split(b"\n")]

    def ended(raw: bytes) -> list[bytes]:
        return plain(raw) if plain(raw)[-1:] == [b""] else [*plain(raw), b""]

    assert agree("text", one, other) == (ended(one) == ended(other))


TREES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
    max_leaves=10,
)  # fmt: skip


@given(TREES)
def test_a_document_agrees_with_itself_written_otherwise(tree: object) -> None:
    texts = json.dumps(tree).encode(), json.dumps(tree, indent=3, ensure_ascii=False)
    assert agree("json:rel=0", texts[0], texts[1].encode("utf-8", "surrogatepass"))


@given(st.from_regex(NUMBER.pattern, fullmatch=True), st.from_regex(NUMBER.pattern, fullmatch=True))
def test_being_near_is_symmetric_for_all_that_is_a_number(one: bytes, other: bytes) -> None:
    for tolerance in (Tolerance(), Tolerance(0.0), Tolerance(0.5, 1.0, True)):
        assert near(one, other, tolerance) == near(other, one, tolerance)
        assert near(one, one, tolerance) or (b"n" in one.lower() and not tolerance.nan_is_equal)


# ----------------------------------------------------------------------------- hostile contents


@pytest.mark.parametrize(
    "content",
    [
        b"9" * 1_000_000,
        b"1" * 999 + b"x" * 3_000_000,
        b"1e" + b"9" * 500,
        b" " * 3_000_000 + b"1",
        b"\n" * 3_000_000 + b"1",
        bytes(range(256)) * 4000,
        b"\0" * 1_000_000,
        b"1." * 500_000,
        b"+-" * 500_000,
        b"[" * 1_000_000,
        b'{"a":' * 100_000,
        b"-" + b"9" * 1_000_000,
        b"\xff" * 1_000_000,
    ],
    ids=lambda content: f"{len(content)}-{content[:3]!r}",
)
@pytest.mark.parametrize("spec", ["text", "numbers", "json"])
def test_hostile_contents_are_compared_to_the_last_byte(spec: str, content: bytes) -> None:
    assert compared(spec, content, content) is None
    assert compared(spec, content, content[:-1] + b"7") is not None
    assert compared(spec, content + b"\n1.0", content + b"\n1.5") is not None


def test_a_difference_names_file_line_and_values_in_few_printable_characters() -> None:
    found = compared("numbers", b"a 1\nb 2.5 c", b"a 1\nb 2.6 c")
    assert found == Difference("out, line 2", "2.5", "2.6", "not near: rel=1e-06, abs=0")
    found = compared("text", b"1\nhello world\n", b"1\nhello \x1b[31mworld\n")
    assert found == Difference(
        "out, line 2", "hello world", r"hello \x1b[31mworld", "not the same text"
    )
    found = compared("json", b'{"a": [1, {"b": 2}]}', b'{"a": [1, {"b": 3}]}')
    assert found == Difference("out, /a/1/b", "2", "3", "not near: rel=1e-06, abs=0")
    found = compared("numbers", b"x" * 5000, b"1")
    assert found is not None and len(found.one + found.other) < 200


def test_other_names_of_outputs_are_no_agreement() -> None:
    file = AnswerFile("0", content=b"1")
    found = difference(parse("numbers"), {"a": file, "b": file}, {"a": file})
    assert found == Difference("the names of the outputs", "a, b", "a", "not the same files")


# ---------------------------------------------------------------------------------- what is asked


@pytest.mark.parametrize(
    ("spec", "said"),
    [
        ("fuzzy", "unknown validator 'fuzzy'; known: exact, text, numbers:rel"),
        ("exact:rel=1", "validator exact has no options, got 'rel=1'"),
        ("numbers:", "nothing follows the colon"),
        ("numbers:rel=x", "rel=x is no number from 0 up"),
        ("numbers:rel=-1", "rel=-1 is no number from 0 up"),
        ("numbers:rel=nan", "rel=nan is no number from 0 up"),
        ("numbers:rel=2", "rel=2 must be below 1"),
        ("numbers:abs=inf", "abs=inf is no number from 0 up"),
        ("numbers:rel=1e-6,rel=1e-5", "rel is given twice"),
        ("numbers:tol=1", "'tol=1' is none of its options; known: rel=…, abs=…, nan=…"),
        ("numbers:nan=maybe", "nan=maybe must be equal or different"),
        ("json:ignore=time", "ignore=time is no path"),
        ("command:", "nothing follows the colon"),
        ("command", "names no program"),
        ("command:'x", "cannot be split"),
    ],
)
def test_a_wrong_validator_is_refused_with_what_is_wrong(spec: str, said: str) -> None:
    with pytest.raises(UnknownValidator, match=re.escape(said)):
        parse(spec)


def test_text_and_documents_are_compared_without_options() -> None:
    assert text.difference(io.BytesIO(b"1"), io.BytesIO(b"1")) is None
    same = documents.difference(io.BytesIO(b"1"), io.BytesIO(b"1.0"), Tolerance(), ())
    assert same is None
