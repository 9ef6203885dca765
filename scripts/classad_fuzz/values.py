"""Whether two tagged values are the same one."""

from __future__ import annotations

import math
from typing import Any

TOLERANCE = 1e-12  # relative, of reals: libraries of C round the last digit in their own ways


def same(ours: Any, theirs: Any) -> bool:
    """Tell whether both are the same value, in depth; names of attributes ignore case."""
    if ours["type"] != theirs["type"]:
        return False
    match ours["type"]:
        case "real" | "reltime":
            return _close(float(ours["value"]), float(theirs["value"]))
        case "abstime":
            return bool(ours == theirs)
        case "list":
            mine, other = ours.get("value", []), theirs.get("value", [])
            return len(mine) == len(other) and all(map(same, mine, other))
        case "classad":
            mine, other = _folded(ours), _folded(theirs)
            return mine.keys() == other.keys() and all(same(mine[k], other[k]) for k in mine)
        case _:
            return bool(ours.get("value") == theirs.get("value"))


def _folded(ad: Any) -> dict[str, Any]:
    return {name.lower(): value for name, value in ad.get("value", {}).items()}


def _close(ours: float, theirs: float) -> bool:
    if math.isnan(ours) or math.isnan(theirs):
        return math.isnan(ours) and math.isnan(theirs)
    if ours == theirs:
        return math.copysign(1, ours) == math.copysign(1, theirs)
    return math.isclose(ours, theirs, rel_tol=TOLERANCE)
