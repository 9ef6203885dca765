"""The program that runs calls on a host.  The BOT brings it: it imports nothing of GridBot's.

Arguments: the version of Python that pickled the calls, `pickle` or `json` for what it returns, and
the calls as base64 of a pickle; `-` if they are in the file `calls.pickle`.
"""

from __future__ import annotations

import base64
import functools
import io
import json
import pickle
import sys
import time
import traceback
from collections.abc import Callable
from typing import Any

Outcome = tuple[float, bool, Any]  # seconds; whether it succeeded; its value or its error, packed


def main(version: str, form: str, calls: str) -> None:
    """Run the calls; the exit code is 0 whatever they raise."""
    here = "{}.{}".format(*sys.version_info)
    if here != version:
        sys.exit(f"these calls were pickled by Python {version}, and this is {here}")
    sys.path[:0] = ["", "cloudpickle.zip"]
    content = _read("calls.pickle") if calls == "-" else base64.b64decode(calls)
    returned = [_run(call, form) for call in pickle.loads(content)]  # noqa: S301
    with open("returned", "wb") as file:
        file.write(json.dumps(returned).encode() if form == "json" else pickle.dumps(returned))


def _run(call: bytes, form: str) -> Outcome:
    began = time.perf_counter()
    try:
        function = _function()
        args, kwargs = pickle.loads(call)  # noqa: S301
        began = time.perf_counter()
        value = function(*args, **kwargs)
        seconds = time.perf_counter() - began
        return seconds, True, _plain(value) if form == "json" else _pickled(value)
    except BaseException as error:  # of whatever kind: it is the call's outcome
        return time.perf_counter() - began, False, _told(error, form)


@functools.cache
def _function() -> Callable[..., Any]:
    """Load the function; an error of that is the calls' own."""
    found: Callable[..., Any] = pickle.loads(_read("function.pickle"))  # noqa: S301
    return found


def _pickled(value: object) -> bytes:
    try:
        return pickle.dumps(value)
    except Exception:  # what came by value goes back so
        import cloudpickle

        content: bytes = cloudpickle.dumps(value)
        return content


def _plain(value: object) -> dict[str, Any]:
    """What JSON has, and arrays without objects in them.  Raises TypeError or ValueError."""
    if type(value).__module__ != "numpy":
        json.dumps(value)
        return {"value": value}
    import numpy

    file = io.BytesIO()
    numpy.save(file, numpy.asarray(value), allow_pickle=False)
    return {"array": base64.b64encode(file.getvalue()).decode()}


def _told(error: BaseException, form: str) -> tuple[bytes | None, str, str, str]:
    """Tell of an exception: itself if it can travel, its type, its text, and its traceback."""
    text = "".join(traceback.format_exception(type(error), error, error.__traceback__))
    content = None
    if form != "json":
        try:
            content = _pickled(error)
            pickle.loads(content)  # noqa: S301 - many exceptions can be pickled, but not unpickled
        except Exception:
            content = None
    return content, type(error).__name__, str(error), text


def _read(name: str) -> bytes:
    with open(name, "rb") as file:
        return file.read()


if __name__ == "__main__":
    main(*sys.argv[1:])
