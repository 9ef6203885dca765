"""The forms that values of relations have, for those who give attributes a meaning.  Pure."""

from __future__ import annotations

from gridbot.api.errors import BadInput
from gridbot.rsl.syntax import Relation, Variables, written

Found = str | tuple[object, ...]  # a value without variables

MOST_JOBS = 1_000_000


def values_of(relation: Relation, variables: Variables) -> list[Found]:
    """The values of a relation with =, without variables.  Raises BadInput."""
    if relation.operator != "=":
        raise BadInput(f"RSL: {written(relation)[:60]}: expected = after {relation.attribute}")
    return list(map(variables.substituted, relation.values))


def single(relation: Relation, values: list[Found]) -> str:
    """The only value, a text.  Raises BadInput."""
    if len(values) != 1 or not isinstance(values[0], str):
        raise BadInput(f"RSL: {written(relation)[:60]}: expected one value")
    return values[0]


def texts(relation: Relation, values: list[Found]) -> tuple[str, ...]:
    """The values, which are texts.  Raises BadInput."""
    if not all(isinstance(value, str) for value in values):
        raise BadInput(f"RSL: {written(relation)[:60]}: expected values without parentheses")
    return tuple(value for value in values if isinstance(value, str))


def pairs(relation: Relation, values: list[Found]) -> dict[str, str]:
    """The values, which are pairs of texts.  Raises BadInput."""
    found = dict[str, str]()
    for value in values:
        match value:
            case (str(name), str(text)):
                found[name] = text
            case _:
                raise BadInput(f"RSL: {written(relation)[:60]}: expected (NAME VALUE) …")
    return found


def number(relation: Relation, values: list[Found]) -> int:
    """The only value, a number of things.  Raises BadInput."""
    text = single(relation, values)
    if not (text.isascii() and text.isdigit() and len(text) < 8 and 0 < int(text) <= MOST_JOBS):
        raise BadInput(f"RSL: {written(relation)[:60]}: expected a number from 1 to {MOST_JOBS}")
    return int(text)


def literal(text: str) -> str:
    """A text in which no brace is a placeholder's."""
    return text.replace("{", "{{").replace("}", "}}")
