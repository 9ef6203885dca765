import inspect
from collections.abc import Iterator
from datetime import datetime
from types import ModuleType, UnionType
from typing import Any, Literal, Union, get_args, get_origin, get_type_hints, is_typeddict

import pytest

from gridbot.api import documents
from gridbot_server.models.responses import (
    ResponseModel,
    bots,
    data,
    explanation,
    grids,
    groups,
    operation,
    prediction,
    results,
    signing,
    workflows,
)

READ = {name: item for name, item in vars(documents).items() if is_typeddict(item)}


def answers(*modules: ModuleType) -> Iterator[tuple[str, type[ResponseModel]]]:
    for module in modules:
        for name, item in vars(module).items():
            if inspect.isclass(item) and issubclass(item, ResponseModel):
                yield name, item


SENT = dict(
    answers(
        bots, data, explanation, grids, groups, operation, prediction, results, signing, workflows
    )
)  # fmt: skip


def shape(hint: Any) -> str:
    """A type as its JSON looks: a time is a text, a model an object of its name."""
    if hint is datetime:
        return "str"
    origin, inner = get_origin(hint), get_args(hint)
    if origin in (Union, UnionType):
        return " | ".join(sorted(map(shape, inner)))
    if origin is Literal:
        return f"one of {sorted(inner)}"
    if origin is not None:
        return f"{origin.__name__} of {', '.join(map(shape, inner))}"
    return str(hint.__name__)


@pytest.mark.parametrize("name", READ)
def test_what_the_session_reads_is_what_the_server_sends(name: str) -> None:
    model, document = SENT[name], READ[name]
    sent, read = get_type_hints(model), get_type_hints(document)
    fields = model.model_fields
    assert {field: shape(read[field]) for field in read} == {
        field: shape(sent[field]) for field in fields
    }
    required = {field for field, about in fields.items() if about.is_required()}
    assert document.__required_keys__ == required


def test_a_field_of_another_type_is_noticed() -> None:
    assert shape(int | None) != shape(int)
    assert shape(list[int]) != shape(list[str])
    assert shape(Literal["open"]) != shape(Literal["open", "done"])
