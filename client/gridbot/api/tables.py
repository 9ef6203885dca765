"""Rows of Python's tables: lists, generators, NumPy arrays, data frames."""

from __future__ import annotations

import dataclasses
import datetime
import math
from collections.abc import Iterable, Iterator, Mapping
from decimal import Decimal
from pathlib import PurePath
from typing import Any, cast

from gridbot.api.errors import BadInput
from gridbot.api.results import Real
from gridbot_client.protocol.messages import Scalar

_NO_ROWS = (str, bytes, bytearray, Mapping)
_MISSING = ("NAType", "NaTType")  # pandas' words for a value that is not there


def rows_in(source: object, unnamed: str) -> Iterator[Mapping[str, Scalar]]:
    """Yield the rows of a data frame, or each item of an iterable as one.

    An item without names is a value for the column `unnamed`.  What is no value of an argument
    stays as it is, for its column to be named when it is refused.  Raises BadInput if the source
    has no rows.
    """
    is_scalar = isinstance(source, _NO_ROWS) or getattr(source, "ndim", None) == 0
    if is_scalar or not isinstance(source, Iterable):
        raise BadInput(
            f"items: a {_kind(source)} has no rows; pass a range, a list of values or of"
            " mappings, a data frame, or Path(…) for a file"
        )
    for number, item in enumerate(_records(source)):
        names = _named(item)
        if names is None and (isinstance(item, list | tuple) or getattr(item, "ndim", 0) > 0):
            raise BadInput(
                f"items[{number}]: a {_kind(item)} has no names for its values; pass a mapping for"
                " each job, such as {'x': 1, 'y': 2}, or a data frame"
            )
        found = {unnamed: item} if names is None else names
        yield {str(name): _scalar(value) for name, value in found.items()}


def _records(source: Iterable[object]) -> Iterable[object]:
    """Items, which are mappings if the source is a data frame of pandas."""
    columns = getattr(source, "columns", None)
    if columns is None:
        return source
    if not hasattr(source, "itertuples"):
        raise BadInput(f"items: the rows of a {_kind(source)} cannot be read; pass mappings")
    if getattr(columns, "nlevels", 1) > 1:
        raise BadInput(
            f"items: the columns of the {_kind(source)} have names of {columns.nlevels} levels;"
            " give each one name: frame.columns = ['_'.join(map(str, n)) for n in frame.columns]"
        )
    names = [str(name) for name in columns]
    for name in names:
        if names.count(name) > 1:
            raise BadInput(f"items: two columns are named {name!r}; rename one")
    rows = source.itertuples(index=False, name=None)
    # Only among reals is NaN a value; elsewhere it is how pandas says that there is none.
    reals = [getattr(kind, "kind", "") == "f" for kind in cast(Any, source).dtypes]
    return (
        {
            name: None if not is_real and _is_nan(value) else value
            for name, value, is_real in zip(names, row, reals, strict=True)
        }
        for row in rows
    )


def _is_nan(value: object) -> bool:
    return isinstance(value, float) and math.isnan(value)


def _named(item: object) -> Mapping[Any, Any] | None:
    """Values of an item by name; None if it has no names."""
    if isinstance(item, Mapping):
        return item
    if isinstance(item, tuple) and hasattr(item, "_asdict"):
        return cast(Mapping[str, Any], item._asdict())
    if dataclasses.is_dataclass(item) and not isinstance(item, type):
        return {field.name: getattr(item, field.name) for field in dataclasses.fields(item)}
    if names := getattr(getattr(item, "dtype", None), "names", None):  # of NumPy's records
        return dict(zip(names, cast(Any, item).item(), strict=True))
    return None


def index_names(source: object) -> tuple[str, ...]:
    """Names of the levels of a data frame's index, whose values are no columns."""
    index = getattr(source, "index", None)
    return tuple(str(name) for name in getattr(index, "names", ()) if name is not None)


def _scalar(value: Any) -> Scalar:
    """A value as an argument: paths and flags as Python writes them, nothing as an empty text.

    Dates and times are those of ISO 8601, as in 2026-01-31T18:00:00.
    """
    if getattr(value, "ndim", None) == 0 and hasattr(value, "item"):  # of NumPy and its like
        value = _item(value)
    if value is None or type(value).__name__ in _MISSING:
        return ""
    if isinstance(value, datetime.date | datetime.time):
        return value.isoformat()
    if isinstance(value, bool | PurePath | Real | Decimal):
        return str(value)
    return cast(Scalar, value)  # `items.survey` refuses values that are no scalars


def _item(value: Any) -> Any:
    """Python's value of a scalar of NumPy; times, whose items would be numbers of some unit, as
    they are written, and differences of times as they are."""
    kind = getattr(value.dtype, "kind", "")
    if kind == "M":
        return None if str(value) == "NaT" else str(value)
    return value if kind == "m" else value.item()


def _kind(source: object) -> str:
    return type(source).__qualname__
