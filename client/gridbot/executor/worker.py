"""The program that runs calls on a host.  The BOT brings it: it imports nothing of GridBot's.

Arguments: the version of Python that pickled the calls, `pickle` or `json` for what it returns, and
the calls as base64 of a pickle; `-` if they are in the file `calls.pickle`.  With `task` it returns
a pickle as well, and exits with 1 if a call raised.  Without arguments it
stays for many jobs, which come over its standard input, a socket, as the client's `residents.py`
says.
"""

from __future__ import annotations

import base64
import functools
import io
import json
import os
import pickle
import socket
import sys
import time
import traceback
from collections.abc import Callable, Mapping
from typing import Any

Outcome = tuple[float, bool, Any]  # seconds; whether it succeeded; its value or its error, packed

_FUNCTION, _CALLS = "function.pickle", "calls.pickle"
_MOST_FUNCTIONS = 16  # that are kept loaded


def main(*arguments: str) -> None:
    """Run the calls of one job or of many."""
    sys.path[:0] = ["", os.path.abspath("cloudpickle.zip")]
    if not arguments:
        _stay()
        return
    _check(arguments[0])
    names = [_FUNCTION, *([_CALLS] if arguments[2] == "-" else [])]
    returned = _job({name: _read(name) for name in names}, *arguments)
    with open("returned", "wb") as file:
        file.write(returned)
    if arguments[1] == "task":
        for _, good, told in pickle.loads(returned):  # noqa: S301
            if not good:
                sys.exit(told[-1])  # the traceback


def _stay() -> None:
    """Run job after job until the client hangs up."""
    channel = socket.socket(fileno=os.dup(0))
    nothing = os.open(os.devnull, os.O_RDONLY)
    os.dup2(nothing, 0)  # for the calls
    os.close(nothing)
    with channel, channel.makefile("rwb") as file:
        for line in file:
            told = json.loads(line)
            inputs = {name: file.read(size) for name, size in told["inputs"].items()}
            os.environ.update(told["environment"])
            _check(told["arguments"][0])
            returned = _job(inputs, *told["arguments"])
            sys.stdout.flush()
            sys.stderr.flush()
            answer = {"exit_code": 0, "outputs": {"returned": len(returned)}}
            file.write(json.dumps(answer).encode() + b"\n" + returned)
            file.flush()


def _check(version: str) -> None:
    here = "{}.{}".format(*sys.version_info)
    if here != version:
        sys.exit(f"these calls were pickled by Python {version}, and this is {here}")


def _job(inputs: Mapping[str, bytes], _: str, form: str, calls: str) -> bytes:
    content = inputs[_CALLS] if calls == "-" else base64.b64decode(calls)
    returned = [_run(inputs[_FUNCTION], call, form) for call in pickle.loads(content)]  # noqa: S301
    return json.dumps(returned).encode() if form == "json" else pickle.dumps(returned)


def _run(pickled: bytes, call: bytes, form: str) -> Outcome:
    began = time.perf_counter()
    try:
        function = _function(pickled)
        args, kwargs = _Arguments(io.BytesIO(call)).load()
        began = time.perf_counter()
        value = function(*args, **kwargs)
        seconds = time.perf_counter() - began
        return seconds, True, _plain(value) if form == "json" else _pickled(value)
    except BaseException as error:  # of whatever kind: it is the call's outcome
        return time.perf_counter() - began, False, _told(error, form)


class _Arguments(pickle.Unpickler):
    """Reads the arguments of a call.  What other jobs wrote stands in files of this one."""

    def persistent_load(self, place: str) -> Any:
        """The value that another call returned, or the paths below a folder."""
        if place.endswith("/"):
            below = (os.path.join(where, name) for where, _, ns in os.walk(place) for name in ns)
            return sorted(below)
        [(_, _, value)] = pickle.loads(_read(place))  # noqa: S301
        return pickle.loads(value)  # noqa: S301


@functools.lru_cache(_MOST_FUNCTIONS)
def _function(pickled: bytes) -> Callable[..., Any]:
    """Load the function; an error of that is the calls' own."""
    found: Callable[..., Any] = pickle.loads(pickled)  # noqa: S301
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
