from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gridbot_client.protocol.messages import Scalar
from gridbot_client.protocol.template import TemplateError, fill, placeholders_in

TYPES = {"i": "int", "theta": "real", "name": "text"}


@pytest.mark.parametrize(
    ("argument", "args", "filled"),
    [
        ("--t={theta}/{i}", {"theta": 0.1, "i": 7}, "--t=0.1/7"),
        ("{}", {"i": 3}, "3"),
        ("{theta}", {"theta": "0.10"}, "0.10"),
        ("{theta}", {"theta": 2}, "2"),
        ("{{{i}}}", {"i": 1}, "{1}"),
        ("{name}", {"name": "$(rm -rf /); {i}"}, "$(rm -rf /); {i}"),
        ("{name}", {"name": True}, "true"),
        ("plain", {}, "plain"),
    ],
)
def test_placeholders_fill_a_part_of_one_argument(
    argument: str, args: dict[str, Scalar], filled: str
) -> None:
    assert fill(["run", argument], TYPES, args) == ["run", filled]


@pytest.mark.parametrize(
    ("argument", "args", "message"),
    [
        ("{i}", {"i": 1.5}, "placeholder {i} is of type int, got 1.5"),
        ("{i}", {"i": True}, "placeholder {i} is of type int, got True"),
        ("{theta}", {"theta": "nan"}, "placeholder {theta} is of type real, got 'nan'"),
        ("{theta}", {"theta": "1; ls"}, "placeholder {theta} is of type real, got '1; ls'"),
        ("{name}", {"i": 1}, "placeholder {name} has no value"),
        ("{other}", {"other": 1}, "placeholder {other} has no type"),
        ("a{b", {}, "single '{' at character 2"),
        ("print $1}", {}, "write }} for a literal brace"),
    ],
)
def test_what_does_not_fit_names_placeholder_and_value(
    argument: str, args: dict[str, Scalar], message: str
) -> None:
    with pytest.raises(TemplateError) as caught:
        fill([argument], TYPES, args)
    assert message in str(caught.value)


def test_placeholders_are_listed() -> None:
    assert placeholders_in(["a{x}b{y}", "{{z}}", "{}"]) == {"x", "y", "i"}
    with pytest.raises(TemplateError, match="single"):
        placeholders_in(["{"])


@given(st.text().filter(lambda text: "\x00" not in text))
def test_escaped_text_comes_out_as_it_went_in(text: str) -> None:
    escaped = text.replace("{", "{{").replace("}", "}}")
    assert fill([escaped], {}, {}) == [text]


@given(st.floats(allow_nan=False, allow_infinity=False))
def test_a_real_keeps_its_value(value: float) -> None:
    assert float(fill(["{theta}"], TYPES, {"theta": value})[0]) == value
