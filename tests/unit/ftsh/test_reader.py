import pytest

from gridbot.ftsh.reader import read
from gridbot.ftsh.tree import (
    BinaryExpression,
    If,
    RangeExpression,
    ScriptError,
    Simple,
    TextPiece,
    Try,
    Word,
    WordExpression,
)


@pytest.mark.parametrize(
    ("script", "line", "what"),
    [
        ("try 3 times\n  echo\n", 3, "try of line 2 has no end"),
        ("end\n", 1, "end stands here alone"),
        ("echo\ncatch\n", 2, "catch stands here alone"),
        ("if true\nelse\nelse\nend\n", 3, "else stands here alone"),
        ("echo for\n", 1, 'for is a reserved word; write "for" for a text'),
        ("try 3 echo\nend\n", 1, "expected times, seconds, minutes, hours or days"),
        ("try 3 times 4 times\nend\n", 1, "two numbers of times"),
        ("try for 1 hour or 2 days\nend\n", 1, "two limits of time"),
        ("try every 3\nend\n", 1, "expected seconds"),
        ("for x a b\nend\n", 1, "expected in, found a"),
        ("for x-y in a\nend\n", 1, "x-y is no name of a variable"),
        ("for x in\nend\n", 1, "expected a value, found the end of the line"),
        ("if 1 .lt. 2 .lt. 3\nend\n", 1, "a comparison of a comparison"),
        ("x=( 1 .add. 2\n", 1, "expected ), found the end of the line"),
        ("x=1 2\n", 1, "expected the end of the line, found 2"),
        ("function f\nend\nfunction f\nend\n", 3, "function f is there already, in line 1"),
        ('echo\necho "open\n', 2, '" without its end'),
        ("echo a | cat\n", 1, "pipes are not supported"),
        ("sleep 5 &\n", 1, "background"),
        ("cat << E\n", 1, "here-documents"),
        ("echo `date`\n", 1, "back-ticks"),
        ("echo $\n", 1, "a $ without a name"),
        ('echo "${a b}"\n', 1, "${a b} is no name of a variable"),
        ("ls 2>&9\n", 1, "behind >& stands 0, 1 or 2"),
        ("echo x >&2\n", 1, "for a stream: 1>&2"),
        ("ls >\n", 1, "where a redirection leads"),
        ("> f\n", 1, "expected a command, found a redirection"),
        ("return\n", 1, "expected a value"),
        ("if true\n" * 3000, 3000, "within each other"),
    ],
)  # fmt: skip
def test_what_is_wrong_is_told_before_anything_runs(script: str, line: int, what: str) -> None:
    with pytest.raises(ScriptError) as refused:
        read(script)
    assert what in refused.value.what
    assert refused.value.line <= line + 1


def test_a_chain_of_else_if_has_one_end() -> None:
    (command,) = read("if a\nb\nelse if c\nd\nelse\ne\nend\n").body
    assert isinstance(command, If)
    (inner,) = command.otherwise
    assert isinstance(inner, If)
    assert [len(inner.then), len(inner.otherwise)] == [1, 1]


def test_limits_of_try_come_in_any_order() -> None:
    one, other = read(
        "try for 5 minutes or 3 times every 2 hours\nend\ntry 3 times or 5 minutes\nend\n"
    ).body
    assert isinstance(one, Try)
    assert isinstance(other, Try)
    assert one.time is not None
    assert other.time is not None
    assert one.time.unit == other.time.unit == 60
    assert one.every is not None
    assert one.every.unit == 3600
    assert one.times is not None
    assert other.times is not None


def test_operators_bind_as_in_ftsh() -> None:
    (command,) = read("for x in 1 .add. 2 .mul. 3 .to. 9 .step. 2 .pow. 2\nend\n").body
    (found,) = command.words  # type: ignore[union-attr]
    assert isinstance(found, RangeExpression)
    assert isinstance(found.first, BinaryExpression)
    assert found.first.operator == ".add."
    assert isinstance(found.first.right, BinaryExpression)
    assert found.first.right.operator == ".mul."
    assert isinstance(found.step, BinaryExpression)
    assert found.step.operator == ".pow."


def test_a_name_before_parentheses_is_a_call_and_one_in_them_is_not() -> None:
    call, plain = read("for x in f (1)\nend\nfor x in (f) (1)\nend\n").body
    assert len(call.words) == 1  # type: ignore[union-attr]
    assert [type(item) for item in plain.words] == [WordExpression, WordExpression]  # type: ignore[union-attr]


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("a#b", ["a#b"]),
        ("a # b", ["a"]),
        ("a \\\n b", ["a", "b"]),
        ("a\\ b", ["a b"]),
        ("--width=5 a,b", ["--width=5", "a,b"]),
        ("'a b' \"c d\"", ["a b", "c d"]),
        ('"a\\"b"', ['a"b']),
        ("\\$x", ["$x"]),
        ("a;", ["a"]),
        ("-", ["-"]),
        ("a2", ["a2"]),
    ],
)
def test_words_are_divided_as_in_ftsh(text: str, words: list[str]) -> None:
    (command,) = read(f"echo {text}\n").body
    assert isinstance(command, Simple)
    assert [_text(word) for word in command.words[1:]] == words


def _text(word: Word) -> str:
    return "".join(piece.text if isinstance(piece, TextPiece) else "?" for piece in word.pieces)


@pytest.mark.parametrize(
    ("text", "redirections"),
    [
        ("< f", [(0, "r", "file")]),
        ("> f", [(1, "w", "file")]),
        ("2>> f", [(2, "a", "file")]),
        (">& f", [(1, "w", "file"), (2, "w", "stream")]),
        ("&> f", [(1, "w", "file"), (2, "w", "stream")]),
        (">>& f", [(1, "a", "file"), (2, "a", "stream")]),
        ("2>&1", [(2, "w", "stream")]),
        ("-< v", [(0, "r", "variable")]),
        ("-> v", [(1, "w", "variable")]),
        ("2->> v", [(2, "a", "variable")]),
        ("->& v", [(1, "w", "variable"), (2, "w", "stream")]),
        ("< a > b 2>&1", [(0, "r", "file"), (1, "w", "file"), (2, "w", "stream")]),
    ],
)
def test_redirections(text: str, redirections: list[tuple[int, str, str]]) -> None:
    (command,) = read(f"cat {text}\n").body
    assert isinstance(command, Simple)
    found = [(each.stream, each.mode, each.kind) for each in command.redirections]
    assert found == redirections
