"""The generator: from the trees of an ad's attributes to Python functions."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, TypeGuard

from gridbot_policies.classad import nodes
from gridbot_policies.classad.compiler import operations
from gridbot_policies.classad.compiler.code import (
    ABSENT,
    ANY,
    OTHER,
    TRUTH,
    UNDEFINED,
    Code,
    NotCompilable,
    Term,
)
from gridbot_policies.classad.compiler.layout import Layer, Layout
from gridbot_policies.classad.compiler.support import (
    CODE_STEPS,
    CODE_STEPS_OF_WALK,
    NAMESPACE,
)
from gridbot_policies.classad.functions import FUNCTIONS
from gridbot_policies.classad.nodes import Node
from gridbot_policies.classad.values import ERROR as ERROR_VALUE
from gridbot_policies.classad.values import UNDEFINED as UNDEFINED_VALUE
from gridbot_policies.classad.values import Missing, Value, fold

_LOGICAL = frozenset(("&&", "||"))
# Names that mean the current ad, and those that mean what only the walker knows.
_HERE = frozenset(("my", "self"))
_SPECIAL = frozenset(("parent", "toplevel", "root", *_HERE))
# Functions that read a list's elements in the caller's scope: a list of computed values will do.
_OF_ELEMENTS = frozenset(
    ("min", "max", "sum", "avg", "member", "identicalmember", "anycompare", "allcompare", "size")
)
_MAX_LOOPS = 15  # Python allows 20 inside each other
_MAX_NESTING = 60
_MAX_LINES = 2000  # Python takes some ten microseconds to compile one, while requests wait


@dataclass(frozen=True, slots=True)
class CompiledFunction:
    """The code of an own attribute; `steps` is what evaluating it takes at most."""

    name: str
    lines: list[str]
    steps: int
    result: Term


class Program:
    """The functions of some attributes and of those own attributes that they refer to.

    An attribute that is called by another raises Unsettled; an entry asks the walker instead,
    for the whole of itself, so that the budget is the walker's.
    """

    def __init__(
        self, own: Mapping[str, Node | Value], layout: Layout, walk: Callable[[str, Any], Value]
    ) -> None:
        self.own = own
        self.layout = layout
        self.source: list[str] = []
        self.namespace: dict[str, Any] = {**NAMESPACE, "WALK": walk}
        self._functions: dict[str, CompiledFunction | None] = {}  # None while under way
        self._nesting = 0

    def entry(self, key: str) -> str:
        """Generate the function that callers use; return its name."""
        function = self._function(key)
        name = f"entry_{function.name}"
        self.source += [
            f"def {name}(ads):",
            f"  ads.steps += {1 + function.steps // CODE_STEPS_OF_WALK}",
            "  try:",
            *function.lines,
            f"  except UNSETTLED: return WALK(KEY_{function.name}, ads)",
        ]
        self.namespace[f"KEY_{function.name}"] = key
        return name

    def called(self, key: str) -> CompiledFunction:
        """Return the function for an attribute that another refers to."""
        function = self._function(key)
        if function.name not in self.namespace:
            self.namespace[function.name] = None  # until the source is run
            self.source += [f"def {function.name}(ads):", "  if True:", *function.lines]
        return function

    def _function(self, key: str) -> CompiledFunction:
        if key not in self._functions:
            self._functions[key] = None
            self._functions[key] = self._generate(key, f"attribute_{len(self._functions)}")
        found = self._functions[key]
        if found is None:
            raise NotCompilable  # it leads back into itself
        return found

    @contextmanager
    def nested(self) -> Iterator[None]:
        """Go one expression deeper, through attributes too: Python's frames are bounded."""
        if self._nesting >= _MAX_NESTING:
            raise NotCompilable
        self._nesting += 1
        try:
            yield
        finally:
            self._nesting -= 1

    def _generate(self, key: str, name: str) -> CompiledFunction:
        raw = self.own[key]
        code = Code(self.namespace)
        body = _FunctionBody(self, code)
        result = code.settled(body.term(raw if isinstance(raw, Node) else nodes.Constant(raw)))
        if body.steps > CODE_STEPS or len(self.source) + len(code.lines) > _MAX_LINES:
            raise NotCompilable
        lines = [*code.prologue, *code.lines, f"    return {result.text}"]
        return CompiledFunction(name, lines, body.steps, result)


class _FunctionBody:
    """The expression of one function; `steps` counts what evaluating it takes at most."""

    def __init__(self, program: Program, code: Code) -> None:
        self.program = program
        self.code = code
        self.steps = 0
        self._loops = 0

    def term(self, node: Node) -> Term:
        """Emit the code of `node`; return where its value is."""
        self.steps += 1
        with self.program.nested():
            return self._term(node)

    def _term(self, node: Node) -> Term:
        match node:
            case nodes.Constant(value):
                return self.code.constant(value)
            case nodes.Parenthesis(inner):
                return self.term(inner)
            case nodes.Attribute(name):
                return self._bare_name(fold(name))
            case nodes.Selection(base, name):
                return self._selection(base, fold(name))
            case nodes.Unary(operator, operand):
                return operations.unary(self.code, operator, self.term(operand))
            case nodes.Binary("&&" | "||" as operator):
                return self._logical(operator, _operands(node, operator))
            case nodes.Binary():
                return self._binary_chain(node)
            case nodes.Conditional(test, then, otherwise):
                return self._conditional(test, then, otherwise)
            case nodes.Elvis(left, right):
                return self._elvis(left, right)
            case nodes.Call(function, arguments):
                return self._call(fold(function), arguments)
            case _:
                raise NotCompilable

    def _bare_name(self, key: str) -> Term:
        if key in self.program.own:
            return self._own_attribute(key)
        if key == "currenttime":
            return self._call("time", ())
        return self._sought(key, self.program.layout.chain)

    def _own_attribute(self, key: str) -> Term:
        raw = self.program.own[key]
        if not isinstance(raw, Node):
            return self.code.constant(raw)
        function = self.program.called(key)
        self.steps += function.steps
        if function.result.constant is not None:
            return self.code.constant(function.result.constant)
        if key not in self.code.known:
            self.code.known[key] = self.code.assign(f"{function.name}(ads)", function.result.kinds)
        return self.code.known[key]

    def _sought(self, key: str, chain: tuple[Layer, ...]) -> Term:
        """Emit the search for a name along a chain of ads."""
        if key in self.program.layout.ads or key in _SPECIAL or key == "currenttime":
            raise NotCompilable
        mark = (key, chain)
        if mark not in self.code.known:
            self.code.known[mark] = self._search(
                key, [layer for layer in chain if layer.holds(key)]
            )
        return self.code.known[mark]

    def _search(self, key: str, layers: list[Layer]) -> Term:
        if not layers:
            return self.code.constant(UNDEFINED_VALUE)
        name = self.code.reference(key)
        found = self.code.variable()
        for number, layer in enumerate(layers):
            guard = f"if {found} is None: " if number else ""
            attributes = self.code.attributes(layer)
            if key in layer.always_holds:
                self.code.add(f"{guard}{found} = {attributes}[{name}]")
                break
            default = "" if number < len(layers) - 1 else ", U"
            self.code.add(f"{guard}{found} = {attributes}.get({name}{default})")
        return Term(found, ANY)

    def _selection(self, base: Node, key: str) -> Term:
        chain = self._ad(base)
        if chain is not None:
            return self._sought(key, chain)
        if self._is_here(base):
            return self._bare_name(key)
        if key in _SPECIAL or key == "currenttime":
            raise NotCompilable
        holder = self.term(base)
        mark = ("select", holder.text, key)
        if mark not in self.code.known:
            name = self.code.reference(key)
            self.code.known[mark] = self.code.assign(f"SELECT({holder.text}, {name})", ANY)
        return self.code.known[mark]

    def _is_here(self, base: Node) -> bool:
        """Tell whether `base` is MY: here it is the ad that the expression stands in."""
        key = fold(base.name) if isinstance(base, nodes.Attribute) else ""
        return key in _HERE and key not in self.program.own

    def _ad(self, base: Node) -> tuple[Layer, ...] | None:
        """Return where the names of a whole ad are sought, if `base` is known to be one."""
        if not isinstance(base, nodes.Attribute) or fold(base.name) in self.program.own:
            return None
        return self.program.layout.ads.get(fold(base.name))

    def _binary_chain(self, node: nodes.Binary) -> Term:
        """Emit `a + b - c …`; a loop, for such chains may be long."""
        links = [node]
        while isinstance(left := links[-1].left, nodes.Binary) and left.operator not in _LOGICAL:
            links.append(left)
        value = self.term(links[-1].left)
        for link in reversed(links):
            self.steps += 1
            value = operations.binary(self.code, link.operator, value, self.term(link.right))
        return value

    def _logical(self, operator: str, clauses: list[Node]) -> Term:
        """Emit `a && b && …`, or `||`: an error or the deciding value ends it, undefined stays.

        The grouping does not matter: each side is looked at in turn, from the left.
        """
        result = self.code.variable()
        neutral = "True" if operator == "&&" else "False"
        self.code.add(f"{result} = {neutral}")
        self._loops += 1
        if self._loops > _MAX_LOOPS:
            raise NotCompilable
        with self.code.block("while True:"):
            for clause in clauses:
                value = operations.truth(self.code, self.term(clause))
                with self.code.block(f"if {value.text} is not {neutral}:"):
                    self.code.add(f"{result} = {value.text}")
                    if clause is not clauses[-1]:
                        self.code.add(f"if {value.text} is not U: break")
            self.code.add("break")
        self._loops -= 1
        return Term(result, TRUTH)

    def _conditional(self, test: Node, then: Node, otherwise: Node) -> Term:
        # !a ? b : c is a ? c : b, for undefined and errors too.
        while isinstance(test, nodes.Parenthesis) or _is_negation(test):
            if isinstance(test, nodes.Parenthesis):
                test = test.inner
            else:
                test, then, otherwise = test.operand, otherwise, then
        condition = operations.truth(self.code, self.term(test))
        if condition.constant is not None:
            return self._chosen(condition, then, otherwise)
        result = self.code.variable()
        kinds = ABSENT
        for word, node in (("if", then), ("elif", otherwise)):
            with self.code.block(f"{word} {condition.text} is {word == 'if'}:"):
                value = self.term(node)
                self.code.add(f"{result} = {value.text}")
                kinds |= value.kinds
        self.code.add(f"else: {result} = {condition.text}")
        return Term(result, kinds)

    def _chosen(self, condition: Term, then: Node, otherwise: Node) -> Term:
        if isinstance(condition.constant, Missing):
            return condition
        return self.term(then if condition.constant else otherwise)

    def _elvis(self, left: Node, right: Node) -> Term:
        first = self.code.settled(self.term(left))
        result = self.code.variable()
        self.code.add(f"{result} = {first.text}")
        with self.code.block(f"if {result} is U:"):
            value = self.term(right)
            self.code.add(f"{result} = {value.text}")
        return Term(result, (first.kinds & ~UNDEFINED) | value.kinds)

    def _call(self, key: str, arguments: tuple[Node, ...]) -> Term:
        function = FUNCTIONS.get(key)
        if function is None or not function.least <= len(arguments) <= function.most:
            return self.code.constant(ERROR_VALUE)
        if key == "ifthenelse":
            return self._conditional(*arguments)
        if function.lazy:
            raise NotCompilable
        values = [self._argument(key, argument) for argument in arguments]
        if key == "regexp" and (found := operations.literal_search(self.code, function, values)):
            return found
        return operations.call(self.code, self.code.meter(), function, values)

    def _argument(self, function: str, node: Node) -> Term:
        if isinstance(node, nodes.ListNode) and function in _OF_ELEMENTS:
            self.steps += 1
            items = [self.term(item).text for item in node.items]
            return self.code.assign(f"ITEMS({', '.join(items)})", OTHER)
        return self.term(node)


def _is_negation(node: Node) -> TypeGuard[nodes.Unary]:
    return isinstance(node, nodes.Unary) and node.operator == "!"


def _operands(node: Node, operator: str) -> list[Node]:
    """Return the operands of `a && b && c`, from the left."""
    operands: list[Node] = []
    while isinstance(node, nodes.Binary) and node.operator == operator:
        operands.append(node.right)
        node = node.left
    return [node, *reversed(operands)]
