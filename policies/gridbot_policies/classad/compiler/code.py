"""The text of one generated function, and what is known of the values in it."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import Any

from gridbot_policies.classad.compiler.layout import Layer
from gridbot_policies.classad.values import Missing, Value

# Which types a term may have. OTHER: lists, ads, times; NODE: an expression, unevaluated.
BOOL, INT, REAL, STRING, UNDEFINED, ERROR, OTHER, NODE = (1 << bit for bit in range(8))
ABSENT = UNDEFINED | ERROR
TRUTH = BOOL | ABSENT
NUMERIC = INT | REAL | ABSENT | OTHER
VALUE = NODE - 1
ANY = VALUE | NODE
_KINDS = {bool: BOOL, int: INT, float: REAL, str: STRING}


class NotCompilable(Exception):
    """The text has something that only the walker knows."""


@dataclass(frozen=True, slots=True)
class Term:
    """A value in the generated code: a variable or a constant, and the types it may have."""

    text: str
    kinds: int
    constant: Value | None = None

    def may(self, kinds: int) -> bool:
        """Tell whether the value may be of one of these types."""
        return bool(self.kinds & kinds)


@dataclass(slots=True)
class Code:
    """The lines of one function; constants are put into `namespace`, never into the text."""

    namespace: dict[str, Any]
    lines: list[str] = field(default_factory=list)
    prologue: list[str] = field(default_factory=list)
    # What is loaded already at this point of the code, by what it is.
    known: dict[object, Term] = field(default_factory=dict)
    _dicts: dict[str, str] = field(default_factory=dict)
    _depth: int = 1
    _count: int = 0

    def add(self, line: str) -> None:
        """Add a line at the current depth."""
        self.lines.append("    " * self._depth + line)

    @contextmanager
    def block(self, header: str) -> Iterator[None]:
        """Indent; what is loaded inside is not known behind it."""
        self.add(header)
        known, self.known = self.known, dict(self.known)
        self._depth += 1
        yield
        self._depth -= 1
        self.known = known

    def variable(self) -> str:
        """Return a variable name that is not taken."""
        self._count += 1
        return f"v{self._count}"

    def assign(self, text: str, kinds: int) -> Term:
        """Emit an assignment to a new variable."""
        name = self.variable()
        self.add(f"{name} = {text}")
        return Term(name, kinds)

    def attributes(self, layer: Layer) -> str:
        """Return the variable that holds a layer's attributes."""
        if layer.path not in self._dicts:
            name = f"d{len(self._dicts)}"
            self._dicts[layer.path] = name
            self.prologue.append(f"    {name} = {layer.path}")
        return self._dicts[layer.path]

    def meter(self) -> str:
        """Return the variable that counts what functions take."""
        line = "    meter = METER(ads)"
        if line not in self.prologue:
            self.prologue.append(line)
        return "meter"

    def settled(self, value: Term) -> Term:
        """Emit the check that `value` is no unevaluated expression, unless that is known."""
        if value.may(NODE):
            self.add(f"if type({value.text}) not in PLAIN: SETTLED({value.text})")
        return replace(value, kinds=value.kinds & VALUE)

    def constant(self, value: Value) -> Term:
        """Return a constant as a term."""
        match value:
            case Missing.UNDEFINED:
                return Term("U", UNDEFINED, value)
            case Missing.ERROR:
                return Term("E", ERROR, value)
            case _:
                kinds = _KINDS.get(type(value), OTHER)
                return Term(self.reference(value), kinds, value)

    def type_of(self, term: Term) -> str:
        """Return the variable that holds the type of a value."""
        mark = ("type", term.text)
        if mark not in self.known:
            self.known[mark] = self.assign(f"type({term.text})", OTHER)
        return self.known[mark].text

    def reference(self, value: object) -> str:
        """Return the name under which the code finds `value`."""
        name = f"K{len(self.namespace)}"
        self.namespace[name] = value
        return name
