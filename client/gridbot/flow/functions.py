"""Python functions as steps: carried to hosts as `gridbot.Executor` carries them."""

from __future__ import annotations

import base64
import functools
import hashlib
import io
import itertools
import json
import pickle
import shutil
import tempfile
import weakref
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path, PurePath
from typing import Any, ClassVar

from gridbot.api.errors import BadInput, GridbotError
from gridbot.api.results import Result
from gridbot.api.specs import InputSpec
from gridbot.dag.run.shapes import JOB_INPUTS
from gridbot.executor.bots import fields_of_calls, policy_of
from gridbot.executor.calls import MOST_INLINE_BYTES, Outcome, Pickling, outcomes
from gridbot.flow.steps import FIELDS, Gathered, Outputs, Step, hash_of
from gridbot_client.protocol.messages import Scalar

RETURNED = "returned"

# Options that a call says by itself.
_OWN = ("name", "base", "outputs", "policy", "job_inputs", "exit_codes", "resident")


@dataclass(eq=False, repr=False)
class FlowTask(Step):
    """A call of a function; made by calling what `Flow.task` decorates."""

    arguments: str = ""  # hash of what is the same in each process
    job_content: ClassVar[str] = "arguments"

    @property
    def value(self) -> Any:
        """What the call returned.  Raises what it raised, or GridbotError if it has not ended."""
        if self._outcome is None:
            raise GridbotError(f"task {self.name} has no value: {self.details or 'it did not run'}")
        if self._outcome.error is not None:
            raise self._outcome.error
        return self._outcome.value

    @property
    def error(self) -> BaseException | None:
        """What the call raised, if it did."""
        return self._outcome.error if self._outcome else None

    @property
    def key(self) -> str:
        """Names its BOT; the folder of what it needs is another in each process."""
        return hash_of({**self.submission, "base": ""})

    def content_of(self, row: Mapping[str, Scalar], files: Sequence[tuple[str, str]]) -> object:  # noqa: ARG002 - pickles differ
        """Its arguments: pickles of the same are others in another process."""
        return self.arguments

    def is_good(self, result: Result) -> bool:
        """A call that raised has an answer as well."""
        return super().is_good(result) and not result.exit_code

    @functools.cached_property
    def _returned(self) -> Outcome | None:
        for result in (*self.known.values(), *self.failed.values()):
            if RETURNED in result.outputs:
                return outcomes(result.outputs[RETURNED].read(), "pickle", 1)[0]
        return None

    @property
    def _outcome(self) -> Outcome | None:
        return self._returned if self.has_ended else None


class FlowFunction:
    """A function whose calls are steps of a flow, each called `name`.

    Raises BadInput for `options` that calls do not have.
    """

    def __init__(
        self, add: Callable[[FlowFunction, Any, Any], FlowTask], function: Callable[..., Any],
        name: str, options: Mapping[str, Any],
    ) -> None:  # fmt: skip
        functools.update_wrapper(self, function)
        self.function = function
        self.name = name or getattr(function, "__name__", "task")
        fields = dict(options)
        trusts, requirements = fields.pop("trusts", ()), fields.pop("requirements", "")
        self.inputs = [self._input(path) for path in _listed(fields.pop("inputs", ()))]
        if unknown := sorted(fields.keys() - FIELDS.difference(_OWN)):
            instead = "; say with requirements= which hosts it needs" * (unknown[0] == "policy")
            raise BadInput(f"task {self.name}: a task has no {unknown[0]!r}{instead}")
        self.fields = {**fields, "policy": policy_of("pickle", _listed(trusts), requirements)}
        self._add = add

    def _input(self, path: object) -> str:
        if not isinstance(path, str | Path):
            raise BadInput(
                f"task {self.name}: input {path!r} is no file of this machine; pass outputs as"
                " arguments of the call"
            )
        return str(Path(path).absolute())

    def __call__(self, *args: Any, **kwargs: Any) -> FlowTask:
        """Add a step that calls it."""
        return self._add(self, args, kwargs)

    def __reduce__(self) -> Any:
        """On a host it is the function itself."""
        return functools.partial, (self.function,)

    def map(self, *iterables: Any) -> list[FlowTask]:
        """A step for each of the arguments, as the built-in `map` has them."""
        return [self(*args) for args in zip(*iterables, strict=False)]


class FunctionCarrier:
    """Makes steps of calls; what they need lies in a folder that goes with it."""

    def __init__(self) -> None:
        self._pickling: Pickling | None = None
        self._numbers = itertools.count()

    def task(
        self, name: str, function: FlowFunction, args: Sequence[Any], kwargs: Mapping[str, Any]
    ) -> FlowTask:
        """The step of a call.  Raises BadInput without cloudpickle."""
        if self._pickling is None:
            self._folder = Path(tempfile.mkdtemp(prefix="gridbot-flow-"))
            weakref.finalize(self, shutil.rmtree, self._folder, ignore_errors=True)
            self._pickling = Pickling(self._folder, ())
        folder = self._folder
        arguments = _Arguments(args, kwargs)
        calls = pickle.dumps([arguments.content])
        files = {"function.pickle": self._pickling.function(function.function)}
        row = {"calls": base64.b64encode(calls).decode()}
        if len(calls) > MOST_INLINE_BYTES:
            row = {"calls": "-"}
            files["calls.pickle"] = f"calls-{next(self._numbers)}"
            (folder / files["calls.pickle"]).write_bytes(calls)
        return FlowTask(
            name=name,
            submission={
                **fields_of_calls(folder, "task", function.inputs), **function.fields,
                "job_inputs": JOB_INPUTS, "exit_codes": (0, 1), "max_failures": "100%",
            },
            rows=[row],
            arguments=arguments.hash,
            gathered=arguments.gathered,
            own_files=[InputSpec(str(folder / path), there) for there, path in files.items()],
            named=frozenset(row),
        )  # fmt: skip


def _listed(given: Any) -> list[Any]:
    """A list; a text alone is one of one, and not its characters."""
    return [given] if isinstance(given, str | Path | Outputs) else [*given]


class _Arguments:
    """Arguments of a call, pickled; `gathered` is what they take from other steps."""

    def __init__(self, args: Sequence[Any], kwargs: Mapping[str, Any]) -> None:
        import cloudpickle

        self.gathered: list[Gathered] = []
        self._places: dict[int, str] = {}  # of steps and of selections that were met
        stand_in = self._stand_in

        class Pickler(cloudpickle.Pickler):  # type: ignore[misc]
            def persistent_id(self, value: object) -> str | None:
                return stand_in(value)

        file = io.BytesIO()
        Pickler(file).dump((tuple(args), dict(kwargs)))
        self.content = file.getvalue()
        self.hash = _hash_of_plain((args, kwargs))

    def _stand_in(self, value: object) -> str | None:
        """What `worker.py` finds in place of what is not known yet."""
        if not isinstance(value, FlowTask | Outputs):
            if isinstance(value, Step):
                raise BadInput(f"{value!r} is no value; pass outputs of it: step.outputs['*']")
            return None
        if id(value) not in self._places:
            number = len(self._places)
            if isinstance(value, FlowTask):
                place, outputs = f"value-{number}", Outputs(value, RETURNED)
            else:
                place, outputs = f"files-{number}/", value
            self._places[id(value)] = place
            self.gathered.append(Gathered(outputs, place))
        return self._places[id(value)]


def _hash_of_plain(value: object) -> str:
    """Hash of what is the same in each process: texts, numbers, lists, mappings, steps.

    Of other objects it has the types.
    """
    try:
        text = json.dumps(value, default=_plain, skipkeys=True)
    except (ValueError, RecursionError):  # it holds itself, or is too deep
        text = ""
    return hashlib.sha256(text.encode()).hexdigest()[:32]


def _plain(value: object) -> object:
    if isinstance(value, FlowTask):
        return ["task", value.name]
    if isinstance(value, Outputs):
        return ["outputs", value.step.name, value.pattern]
    if isinstance(value, bytes | PurePath):
        return repr(value)
    return type(value).__qualname__
