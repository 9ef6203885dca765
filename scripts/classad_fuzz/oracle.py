"""HTCondor's library as a process: batches of cases on stdin, a line per value on stdout.

It may crash, hang or be left in another mode by a case, so nothing else lives in this process.
Started by `library.py`, which sets the environment that the library reads when it is imported.
"""

from __future__ import annotations

import json
import signal
import sys
from typing import Any

import htcondor2  # noqa: F401  # first: it switches the library to HTCondor's defaults
from classad2 import ClassAd, ExprTree, Value
from classad2.classad2_impl import ClassAdException

PATIENCE_SECONDS = 10.0  # for one case


def main() -> None:
    """Answer batches, each a line with a list of [MY, TARGET, expression], until stdin ends."""
    levels = int(sys.argv[1])
    for line in sys.stdin:
        for my, target, expression in json.loads(line):
            # The kernel ends a process that is still busy with this case then.
            signal.setitimer(signal.ITIMER_REAL, PATIENCE_SECONDS)
            sys.stdout.write(json.dumps(answer(my, target, expression, levels)) + "\n")
            # At once: the answers that arrived tell which case a crash belongs to.
            sys.stdout.flush()
        signal.setitimer(signal.ITIMER_REAL, 0)


def answer(my: str | None, target: str | None, expression: str, levels: int) -> dict[str, Any]:
    """Return the tagged value of the expression, lists and ads forced `levels` deep."""
    try:
        scope = ClassAd(my) if my is not None else None
        # Without MY the library ignores TARGET.
        other = ClassAd(target) if target is not None and my is not None else None
    except ClassAdException:
        return {"type": "ad_parse_error"}
    try:
        # The library ignores garbage behind an expression, but not in both of these.
        ClassAd(f"[e = {expression}\n]")
        ClassAd(f"[e = ({expression}\n)]")
    except ClassAdException:
        return {"type": "parse_error"}
    return tagged(f"({expression}\n)", scope, other, levels)


def tagged(text: str, scope: Any, target: Any, levels: int) -> dict[str, Any]:
    """Return the value of `text`, whose elements and attributes are values of longer texts."""
    try:
        value = ExprTree(text).eval(scope, target)
    except ClassAdException:
        return {"type": "error"}
    except UnicodeDecodeError:
        return {"type": "not_utf8"}
    except (ValueError, OverflowError):  # a year that Python's datetime does not have
        return _moment(text, scope, target)
    if value is Value.Undefined or value is Value.Error:
        return {"type": str(value.name).lower()}
    if isinstance(value, bool | int | str):
        return {"type": _SIMPLE[type(value)], "value": value}
    if isinstance(value, float):
        is_span = ExprTree(f"isRelTime({text})").eval(scope, target) is True
        return {"type": "reltime" if is_span else "real", "value": repr(value)}
    if isinstance(value, list | ClassAd):
        return _container(value, text, scope, target, levels)
    return _moment(text, scope, target)


def _moment(text: str, scope: Any, target: Any) -> dict[str, Any]:
    """The seconds and the offset of a time: as a datetime it has lost the offset."""
    seconds = ExprTree(f"int({text})").eval(scope, target)
    offset = ExprTree(f"splitTime({text}).Offset").eval(scope, target)
    return {"type": "abstime", "secs": seconds, "offset": offset}


_SIMPLE = {bool: "bool", int: "int", str: "string"}


def _container(value: Any, text: str, scope: Any, target: Any, levels: int) -> dict[str, Any]:
    kind = "list" if isinstance(value, list) else "classad"
    if levels == 0:
        return {"type": kind}
    if isinstance(value, list):
        parts = [f"{text}[{position}]" for position in range(len(value))]
        return {
            "type": kind,
            "value": [tagged(part, scope, target, levels - 1) for part in parts],
        }
    return {
        "type": kind,
        "value": {
            name: tagged(f"{text}.{_quoted(name)}", scope, target, levels - 1)
            for name in value.keys()  # noqa: SIM118  # iterating over a ClassAd evaluates it
        },
    }


def _quoted(name: str) -> str:
    return "'" + name.replace("\\", "\\\\").replace("'", "\\'") + "'"


if __name__ == "__main__":
    main()
