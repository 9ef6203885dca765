"""`gridbot.Flow`: what a user sees of a flow."""

from __future__ import annotations

import shlex
import sys
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path, PurePath
from typing import Any, overload

from gridbot.api.errors import BadInput, GridbotError
from gridbot.api.inputs import Input
from gridbot.api.results import OutputFile
from gridbot.api.session import Session, connect
from gridbot.dag.engine.table import NodeStatus
from gridbot.flow import picture
from gridbot.flow.functions import FlowFunction, FlowTask, FunctionCarrier
from gridbot.flow.run import FlowRun
from gridbot.flow.steps import Outputs, Step, make_step


class FlowFailed(GridbotError):
    """Steps of a flow have failed; the message has a line for each.  `steps` are those."""

    def __init__(self, steps: Sequence[Step]) -> None:
        super().__init__("\n".join(f"step {step.name}: {step.details}" for step in steps))
        self.steps = tuple(steps)


class Flow:
    """Steps of bags of tasks, of which some read what others wrote.

        flow = Flow("analysis")
        a = flow.bot("./simulate {i}", range(10), outputs=["*.dat"])
        b = flow.bot("./fit {}", a.outputs["*.dat"])                      # one job for each
        c = flow.bot("sh -c 'cat */stdout'", inputs=[b.outputs["stdout"]])  # one for all
        flow.run()

    `name` names its journal, `NAME.flow.journal` in this directory; by default that of the script.
    After a crash of any kind the same script goes on: no job is submitted twice.  `session` is a
    server, by default that of `gridbot.connect()`.  `options` are fields of `Submission` for all
    steps.
    """

    def __init__(self, name: str = "", session: Session | None = None, **options: Any) -> None:
        self.name = name or Path(sys.argv[0]).stem or "flow"
        self.steps: dict[str, Step] = {}
        self._session, self._options = session, options
        self._carrier = FunctionCarrier()
        self._names: Counter[str] = Counter()
        self._below = ""  # the result whose function declares steps now
        self._has_begun = self._has_ended = False

    def bot(
        self,
        command: Sequence[str] | str,
        items: object = None,
        *,
        inputs: Iterable[Input | Outputs] | Input | Outputs = (),
        after: Iterable[Step] = (),
        max_failures: int | str = 0,
        name: str = "",
        **fields: Any,
    ) -> Step:
        """Add a step: the jobs of a command, as in `Session.submit`, of which `fields` are more.

        `items` may be outputs of another step: one job for each, as soon as it is there, with the
        file among its inputs and its name as `{}`; values of the job that wrote it have their
        placeholders, too.  Outputs among the `inputs` are files of each job, which begin when all
        of them are there.  `after` are steps that have to be done before.  The step fails when more
        than `max_failures` of its jobs do, a number or a share such as "5%".
        """
        name = self._named(name or _program(command))
        options = {**self._options, **fields}
        if isinstance(inputs, str | Path | OutputFile | Outputs):
            inputs = [inputs]
        step = make_step(name, command, items, [*inputs], after, max_failures, options)
        return self._add(step)

    @overload
    def task(self, function: Callable[..., Any], /) -> FlowFunction: ...
    @overload
    def task(
        self, /, *, name: str = "", **fields: Any
    ) -> Callable[[Callable[..., Any]], FlowFunction]: ...
    def task(
        self, function: Callable[..., Any] | None = None, /, *, name: str = "", **fields: Any
    ) -> Any:
        """A decorator: calls of a Python function become steps of one job.

            @flow.task
            def add(x, y): return x + y

            total = add(add(1, 2), 3)
            flow.run()
            total.value == 6

        Arguments may be tasks, or hold some: the job gets their values.  Outputs of a step are a
        list of paths there.  As with `gridbot.Executor`, hosts need this version of Python, and are
        this user's or pilots; `trusts`, `requirements` and fields of `Submission` say more.  `name`
        is that of its steps, by default the function's.
        """

        def decorated(function: Callable[..., Any]) -> FlowFunction:
            return FlowFunction(self._add_task, function, name, {**self._options, **fields})

        return decorated if function is None else decorated(function)

    def run(self, progress: bool | None = None) -> None:
        """Run all steps; return when they are done.

        `progress` shows the steps while they run; by default on terminals.  ^C ends this process
        only: jobs go on, and the same script follows them again, or a new flow of this name with
        the same steps.  Raises FlowFailed, BadInput
        before anything begins, or GridbotError if another process runs this flow.
        """
        self._refuse_if(self._has_begun)
        shows = sys.stderr.isatty() if progress is None else progress
        run = FlowRun(self.name, self._session or connect(), self.steps, self._declaring)
        self._has_begun = True
        try:
            with picture.shown(self, shows):
                run.execute()
        finally:
            self._has_ended = True
        if failed := [step for step in self.steps.values() if step.status is NodeStatus.ERROR]:
            errors = (step.error for step in failed if isinstance(step, FlowTask))
            raise FlowFailed(failed) from next(filter(None, errors), None)

    def __str__(self) -> str:
        """The steps as they are, a line each, for a terminal."""
        return picture.text([*self.steps.values()])

    def dot(self) -> str:
        """The graph for Graphviz."""
        return picture.dot(self.name, [*self.steps.values()])

    def _repr_html_(self) -> str:
        return picture.html([*self.steps.values()])

    def _refuse_if(self, is_late: bool) -> None:
        if is_late:
            raise BadInput(f"flow {self.name}: it has run already; declare a new flow")

    # --- declaring

    def _named(self, name: str) -> str:
        """The name of the next step that is called so."""
        name = f"{self._below}{name}"
        self._names[name] += 1
        count = self._names[name]
        return name if count == 1 else f"{name}-{count}"

    def _add(self, step: Step) -> Step:
        self._refuse_if(self._has_ended)
        for other in step.sources:
            if self.steps.get(other.name) is not other:
                raise BadInput(f"step {step.name}: step {other.name} is of another flow")
        self.steps[step.name] = step
        return step

    def _add_task(self, function: FlowFunction, args: Any, kwargs: Any) -> FlowTask:
        task = self._carrier.task(self._named(function.name), function, args, kwargs)
        self._add(task)
        return task

    def _declaring(self, step: Step, process: int) -> list[Step]:
        """Let the functions of a step see a result; return the steps that they have added."""
        before = len(self.steps)
        self._below = f"{step.name}.{process}/"
        try:
            for function in step.callbacks:
                function(step.known[process])
        finally:
            self._below = ""
        return [*self.steps.values()][before:]


def _program(command: Sequence[str] | str) -> str:
    """What a step is called after: its program."""
    try:
        words = shlex.split(command) if isinstance(command, str) else [*map(str, command)]
    except ValueError:
        words = []
    return PurePath(words[0]).stem if words and words[0] else "step"
