"""Calls on their way to a host and back: pickled, sent, and what came of them."""

from __future__ import annotations

import base64
import hashlib
import io
import json
import math
import pickle
import py_compile
import time
import types
import zipfile
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Future
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, TypeVar

from gridbot.api.errors import BadInput, GridbotError

T = TypeVar("T")
Form = Literal["pickle", "json"]
MOST_INLINE_BYTES = 48 << 10  # of a chunk's calls, in the job itself
_MISSING = "Executor needs cloudpickle; install it with: pip install 'gridbot[python]'"


class RemoteError(GridbotError):
    """A call raised an exception that cannot be brought here; the message has its type and text."""


class JobFailed(GridbotError):
    """The job of a call failed; `reason` says why, such as a limit that it exceeded or a signal."""

    def __init__(self, reason: str, detail: str) -> None:
        super().__init__(detail)
        self.reason = reason


class RemoteTraceback(Exception):
    """The traceback of an exception, as text: the cause of the exception itself."""

    def __str__(self) -> str:
        """The text."""
        return f'\n"""\n{self.args[0]}"""'


@dataclass(frozen=True, slots=True)
class Outcome:
    """What came of one call: its value, or its exception."""

    seconds: float
    value: Any = None
    error: BaseException | None = None


@dataclass(frozen=True, slots=True, eq=False)
class PendingCall:
    """One call, and the future that gets what comes of it."""

    function: str  # name of the file with its function
    content: bytes  # pickle of its arguments
    future: Future[Any]

    def settle(self, outcome: Outcome) -> None:
        """Let the future have what came of the call."""
        if outcome.error is not None:
            self.future.set_exception(outcome.error)
        else:
            self.future.set_result(outcome.value)


def taken(queue: deque[PendingCall], most: int) -> Iterator[PendingCall]:
    """Take calls out of a queue that nobody cancelled."""
    count = 0
    while queue and count < most:
        call = queue.popleft()
        if call.future.set_running_or_notify_cancel():
            count += 1
            yield call


def values(futures: list[Future[T]], ends_at: float | None) -> Iterator[T]:
    """Yield results in order, until a monotonic time; what was not asked for is cancelled."""
    futures.reverse()
    try:
        while futures:
            left = None if ends_at is None else ends_at - time.monotonic()
            yield futures.pop().result(left)
    finally:
        for future in futures:
            future.cancel()


class Pickling:
    """Pickles functions, by value what cannot be imported elsewhere, and their arguments."""

    def __init__(self, folder: Path, modules: Iterable[types.ModuleType]) -> None:
        try:
            import cloudpickle
        except ImportError:
            raise BadInput(_MISSING) from None
        self._dumps: Callable[[Any], bytes] = cloudpickle.dumps
        self._folder = folder
        for module in modules:
            cloudpickle.register_pickle_by_value(module)
        _pack(Path(cloudpickle.__file__).parent, folder / "cloudpickle.zip")

    def function(self, function: Callable[..., Any]) -> str:
        """Write a function into a file named by its content; return the name."""
        content = self._dumps(function)
        name = f"function-{hashlib.sha256(content).hexdigest()[:24]}"
        path = self._folder / name
        if not path.exists():
            path.write_bytes(content)
        return name

    def arguments(self, args: Sequence[Any], kwargs: Mapping[str, Any]) -> bytes:
        """Pickle of the arguments of a call."""
        return self._dumps((args, dict(kwargs)))

    def job(self, calls: Sequence[PendingCall], number: int) -> dict[str, str]:
        """Item of the job that runs some calls of one function."""
        content = pickle.dumps([call.content for call in calls])
        item = {"function": calls[0].function, "calls": "-", "data": "none"}
        if len(content) <= MOST_INLINE_BYTES:
            return {**item, "calls": base64.b64encode(content).decode()}
        name = f"calls-{number}"
        (self._folder / name).write_bytes(content)
        return {**item, "data": name}

    def forget(self, item: Mapping[str, str]) -> None:
        """Remove the file of a job's calls, once the server has it."""
        if item["data"] != "none":
            (self._folder / item["data"]).unlink(missing_ok=True)


def outcomes(content: bytes, form: Form, count: int) -> list[Outcome]:
    """What the calls of a job gave.  Raises BadInput if it is nothing that the worker writes.

    Whoever wrote a pickle runs any program in this process: see the theory of operation.
    """
    try:
        raw = json.loads(content) if form == "json" else pickle.loads(content)  # noqa: S301
        found = [_outcome(float(seconds), good, told, form) for seconds, good, told in raw]
    except Exception as error:
        raise BadInput(f"what a job returned cannot be read: {error!r}") from error
    if not all(0 <= outcome.seconds < math.inf for outcome in found):
        raise BadInput("a job returned seconds that are negative or not finite")
    if len(found) != count:
        raise BadInput(f"a job returned the outcomes of {len(found)} calls, not of {count}")
    return found


def _outcome(seconds: float, good: bool, told: Any, form: Form) -> Outcome:
    if good and form == "json":
        return Outcome(seconds, _plain(told))
    if good:
        try:
            return Outcome(seconds, pickle.loads(told))  # noqa: S301
        except Exception as error:  # of this call alone
            return Outcome(seconds, error=error)
    content, name, text, trace = told
    raised: BaseException = RemoteError(f"{name}: {text}")
    if content is not None and form == "pickle":
        raised = pickle.loads(content)  # noqa: S301
    raised.__cause__ = RemoteTraceback(trace)
    return Outcome(seconds, error=raised)


def _plain(told: Mapping[str, Any]) -> Any:
    if "array" not in told:
        return told["value"]
    import numpy

    return numpy.load(io.BytesIO(base64.b64decode(told["array"])), allow_pickle=False)


def _pack(package: Path, target: Path) -> None:
    """Write a package's compiled modules as a zip file, the same bytes each time."""
    compiled = target.with_suffix(".pyc")
    with zipfile.ZipFile(target, "w") as archive:
        for path in sorted(package.glob("*.py")):
            name = f"{package.name}/{path.name}c"
            mode = py_compile.PycInvalidationMode.UNCHECKED_HASH
            py_compile.compile(str(path), str(compiled), name, invalidation_mode=mode)
            archive.writestr(zipfile.ZipInfo(name), compiled.read_bytes())
    compiled.unlink()
