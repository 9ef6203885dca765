"""One evaluation under way: its budget, what it is amid, and what functions see of it."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, NoReturn

from gridbot_policies.classad import nodes
from gridbot_policies.classad.nodes import Node
from gridbot_policies.classad.scopes import adopted, record_of, root_of
from gridbot_policies.classad.values import UNDEFINED, ListValue, Record, Value


@dataclass(frozen=True, slots=True)
class Limits:
    """What one evaluation may use; an expression that wants more is an error as a whole."""

    steps: int = 10_000  # operators, names and calls; long strings and lists count as several
    # Operators and names inside each other, as HTCondor counts; a call takes up to six, and a
    # chain a + b + c one. Each is at most one Python frame, so 1,000 frames always suffice.
    depth: int = 400
    text: int = 65_536  # characters in a string
    items: int = 10_000  # elements of a list


DEFAULT_LIMITS = Limits()
# For texts that come from clients, which nobody has looked at.
CLIENT_LIMITS = Limits(steps=1_000, depth=100, text=4_096, items=1_000)


class Failure(Exception):
    """The evaluation as a whole has no value: its budget is used up, it needs an ad, or a
    function gave it up.

    A signal inside the evaluator; callers get an error value.
    """


Handler = Callable[["Evaluation", Any, Record | None, int], Value]


class Evaluation:
    """One evaluation under way: what it has used, and which attributes it is in the middle of.

    `handlers` gives the value of each kind of node; all of them, at all depths, are called
    through it.
    """

    __slots__ = (
        "busy",
        "handlers",
        "limits",
        "now",
        "records",
        "special",
        "start",
        "steps",
        "strict",
    )

    def __init__(
        self,
        scope: Record | None,
        now: float | None,
        limits: Limits,
        strict: bool,
        handlers: Mapping[type[Node], Handler],
    ) -> None:
        self.start = scope
        self.handlers = handlers
        self.now = now
        self.limits = limits
        self.strict = strict
        self.special = _SPECIAL_STRICT if strict else _SPECIAL
        self.steps = limits.steps  # left
        self.busy: set[tuple[int, str]] = set()
        # By the ids of a node and its scope, which are kept alive so that ids stay unique.
        self.records: dict[tuple[int, int], tuple[Node, Record]] = {}

    @property
    def root(self) -> Record:
        """The outermost ad. Raises Failure if there is none, as HTCondor does."""
        if self.start is None:
            raise Failure
        return root_of(self.start)

    def spend(self, steps: int, depth: int = 1) -> None:
        """Count work, and see that `depth` is left. Raises Failure."""
        self.steps -= steps
        if self.steps < 0 or depth <= 0:
            raise Failure

    def held(self, holder: Record, key: str, depth: int) -> Value:
        """Return the value of an attribute that `holder` has; undefined inside itself."""
        raw = holder.attributes[key]
        if not isinstance(raw, Node):
            return adopted(raw, holder)
        mark = (id(holder.attributes), key)
        if mark in self.busy:
            return UNDEFINED
        self.busy.add(mark)
        value = self.handlers[type(raw)](self, raw, holder, depth - 1)
        self.busy.discard(mark)
        return value

    def look_up(self, key: str, start: Record, depth: int) -> Value | None:
        """Return the value of a name, sought from `start` outwards; None if nobody has it."""
        if key in self.special and key not in start.attributes:
            return self.special[key](self, start)
        holder: Record | None = start
        while holder is not None:
            if key in holder.attributes:
                return self.held(holder, key, depth)
            holder = holder.parent
        return None

    def element(self, item: Node | Value, scope: Record | None, depth: int) -> Value:
        """Return the value of a list's element."""
        if isinstance(item, Node):
            return self.handlers[type(item)](self, item, scope, depth)
        return item if scope is None else adopted(item, scope)

    def elements(self, values: ListValue, scope: Record | None, depth: int) -> Iterator[Value]:
        """Yield the values of a list's elements, but in the scope of who looks at them all.

        That is HTCondor's way, except for records, which stay inside the ad around the list.
        """
        for item in values.items:
            stays = isinstance(item, nodes.RecordNode | nodes.ListNode)
            yield self.element(item, values.scope if stays else scope, depth)

    def record(self, node: nodes.RecordNode, scope: Record | None) -> Record:
        """Return the ad that a record in the text stands for: the same one each time.

        Otherwise an attribute that leads back into it would not be noticed as busy.
        """
        mark = (id(node), id(scope))
        if mark not in self.records:
            self.spend(len(node.definitions) // 2)
            self.records[mark] = (node, record_of(node, scope))
        return self.records[mark][1]


class RunningCall:
    """What a function sees of the evaluation that calls it; see `functions.call.Call`."""

    __slots__ = ("depth", "run", "scope")

    def __init__(self, run: Evaluation, scope: Record | None, depth: int) -> None:
        self.run = run
        self.scope = scope
        self.depth = depth

    @property
    def now(self) -> float | None:
        """The time (s since 1970), if the evaluation was given one."""
        return self.run.now

    @property
    def strict(self) -> bool:
        """Whether this is HTCondor's strict evaluation."""
        return self.run.strict

    def evaluate(self, node: Node) -> Value:
        """Return the value of an argument that came unevaluated."""
        return self.run.handlers[type(node)](self.run, node, self.scope, self.depth)

    def evaluate_in(self, node: Node, scope: Record) -> Value:
        """Return the value that `node` has in another ad."""
        return self.run.handlers[type(node)](self.run, node, scope, self.depth)

    def elements(self, values: ListValue, scope: Record | None = None) -> Iterator[Value]:
        """Yield the values of a list's elements, with `scope` or else the current ad around."""
        for value in self.run.elements(values, scope or self.scope, self.depth - 2):
            self.run.spend(1)
            yield value

    def spend(self, steps: int) -> None:
        """Count work."""
        self.run.spend(steps)

    def fail(self) -> NoReturn:
        """Make an error of the evaluation as a whole."""
        raise Failure

    def text(self, pieces: Iterable[str]) -> str:
        """Join the pieces."""
        collected: list[str] = []
        room = self.run.limits.text
        for piece in pieces:
            self.run.spend(1 + len(piece) // 64)
            room -= len(piece)
            if room < 0:
                raise Failure
            collected.append(piece)
        return "".join(collected)

    def checked(self, value: Value) -> Value:
        """Return `value` if it is within the limits. Raises Failure."""
        limits = self.run.limits
        if type(value) is str and len(value) > limits.text:
            raise Failure
        if type(value) is ListValue and len(value.items) > limits.items:
            raise Failure
        return value


_SPECIAL_STRICT: dict[str, Callable[[Evaluation, Record], Value]] = {
    "self": lambda _, start: start,
    "parent": lambda _, start: start.parent or UNDEFINED,
    "toplevel": lambda run, _: run.root,
    "root": lambda run, _: run.root,
}
_SPECIAL = {
    **_SPECIAL_STRICT,
    "my": _SPECIAL_STRICT["self"],
    "currenttime": lambda run, _: UNDEFINED if run.now is None else int(run.now),
}
