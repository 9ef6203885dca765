"""Expressions drawn at random: each of a kind that makes sense where it stands, mostly."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from typing import TypeVar

from . import vocabulary as words
from .patterns import pattern
from .signatures import NEVER_BARE, SIGNATURES, Signature
from .trees import Tree

IMPLAUSIBLE = 0.05  # share of expressions of another kind than what makes sense
WRONG_COUNT = 0.03  # share of calls with an argument too many or too few
DEPTHS = (0, 1, 1, 2, 2, 2, 3, 3, 3, 3, 4, 4, 4, 5, 5, 6)
KINDS = ("number", "string", "bool", "list", "record", "time", "span", "number", "string", "bool")

_WORDS: dict[str, tuple[str, ...]] = {
    "listed": words.LISTED,
    "delimiters": words.DELIMITERS,
    "version": words.VERSIONS,
    "slot": words.SLOTS,
    "args": words.ARGUMENTS,
    "format": words.FORMATS,
    "options": words.OPTIONS,
    "replacement": words.REPLACEMENTS,
    "comparison": words.COMPARISONS,
}
_GIVING: dict[str, tuple[Signature, ...]] = {
    kind: tuple(each for each in SIGNATURES if each.gives in (kind, "any")) for kind in KINDS
}
_OPERATORS = {"number": (*words.ARITHMETIC * 2, *words.BITWISE), "bool": words.RELATIONS}

T = TypeVar("T")


class Grammar:
    """Draws expressions, all from one source of chance.

    What is `sound` surely parses: ads are, because a bad one would waste all cases that share it.
    """

    def __init__(self, draw: random.Random, *, sound: bool = False) -> None:
        self._random = draw.random
        self._odd = 0.0 if sound else 1.0

    def expression(self) -> Tree:
        """Return an expression of any kind."""
        return self.of("any", self.pick(DEPTHS))

    def pick(self, choices: Sequence[T]) -> T:
        """Return one of `choices`."""
        return choices[int(self._random() * len(choices))]

    def chance(self, share: float) -> bool:
        """Tell whether something that happens in such a share of cases happens now."""
        return self._random() < share

    def of(self, kind: str, depth: int) -> Tree:
        """Return an expression of the kind, or now and then of another, at most so deep."""
        if kind in _WORDS and self.chance(0.9):
            return Tree((self.pick(_WORDS[kind]),))
        if kind in _MAKERS and self.chance(0.95):
            return _MAKERS[kind](self, depth)
        if kind not in KINDS or self.chance(IMPLAUSIBLE):
            kind = "string" if kind in _WORDS and self.chance(0.8) else self.pick(KINDS)
        if depth <= 0 or self.chance(0.07):
            return self._leaf(kind)
        return self.pick(_SHAPES)(self, kind, depth - 1)

    # ------------------------------------------------------------------------------ leaves

    def _leaf(self, kind: str) -> Tree:
        if self.chance(0.35):
            return self.name(kind)
        if self.chance(0.06):
            return Tree((self.pick(words.BARE),))
        return _LEAVES[kind](self)

    def name(self, kind: str = "any") -> Tree:
        """Return a reference to an attribute that may be of the kind, if there is one."""
        plausible = words.ATTRIBUTES.get(kind, words.NAMES)
        name = self.pick(plausible if self.chance(0.7) else words.NAMES)
        if self.chance(0.04 * self._odd):
            name = self.pick(words.STRANGE)
        if self.chance(0.03):
            return Tree((f".{name}",))
        return Tree((self._scope(name),)) if self.chance(0.35) else Tree((name,))

    def _scope(self, name: str) -> str:
        return self.pick(words.SCOPES) + ("" if self.chance(0.05) else f".{name}")

    def _number(self) -> Tree:
        if self.chance(0.01 * self._odd):
            return Tree((self.pick(words.ODD_NUMBERS),))
        if self.chance(0.2):
            return Tree((str(int(self._random() * 200) - 50),))
        return Tree((self.pick(words.INTEGERS if self.chance(0.65) else words.REALS),))

    def _string(self) -> Tree:
        if self.chance(0.25):
            return Tree((self.pick(_WORDS[self.pick(("listed", "version", "slot", "args"))]),))
        return Tree((self.pick(words.STRINGS),))

    def _bool(self) -> Tree:
        return Tree((self.pick(words.BARE[:2]),))

    def _time(self) -> Tree:
        if self.chance(0.6):
            odd = self.chance(0.15 * self._odd)
            return Tree((f"absTime({self.pick(words.ODD_MOMENTS if odd else words.MOMENTS)})",))
        offset = Tree((f", {self.pick(('0', '3600', '-19800', '5', 'a'))}",))
        return Tree(("absTime(", self._number(), offset if self.chance(0.5) else "", ")"))

    def _span(self) -> Tree:
        if self.chance(0.2):
            odd = self.chance(0.3 * self._odd)
            return Tree((f"relTime({self.pick(words.ODD_SPANS if odd else words.SPANS)})",))
        return Tree(("relTime(", self._number(), ")"))

    # --------------------------------------------------------------------- lists and records

    def series(self, kind: str, depth: int, most: int = 4) -> Tree:
        """Return a list of so many elements at most."""
        items = [self.of(kind, depth - 1) for _ in range(int(self._random() * (most + 1)))]
        return Tree(("{", *items, "}"), self.pick((", ", ",")))

    def record(self, depth: int) -> Tree:
        """Return a record of a few attributes."""
        attributes = [self._attribute(depth - 1) for _ in range(int(self._random() * 4))]
        return Tree(("[", *attributes, "]"), "; ")

    def _attribute(self, depth: int) -> Tree:
        kind = self.pick(tuple(words.ATTRIBUTES))
        name = self.pick(words.STRANGE if self.chance(0.05 * self._odd) else words.ATTRIBUTES[kind])
        return Tree((f"{name} = ", self.of(kind, depth)))

    # ------------------------------------------------------------------------------ shapes

    def _call(self, kind: str, depth: int) -> Tree:
        signature = self.pick(_GIVING[kind] if self.chance(0.85) else SIGNATURES)
        return self.call(signature, depth)

    def call(self, signature: Signature, depth: int) -> Tree:
        """Return a call of the function, mostly with as many arguments as it takes."""
        if not self._odd and signature.gives in ("time", "span"):
            return self._leaf(signature.gives)  # a text there may be no time, and then not parse
        arguments = self._arguments(signature, depth)
        name = signature.name
        if self.chance(0.05):
            name = self.pick((str.upper, str.lower))(name)
        if name.lower() not in NEVER_BARE:
            return Tree((f"{name}(", *arguments, ")"), ", ")
        # What asks the clock when it has no argument must not lose its last one.
        first, *rest = arguments or [self.of("number", 0)]
        others = (part for argument in rest for part in (", ", argument))
        return Tree((f"{name}(", Tree((first, *others)), ")"))

    def _arguments(self, signature: Signature, depth: int) -> list[Tree]:
        arguments: list[Tree] = []
        for takes in signature.takes:
            if takes.endswith("?") and self.chance(0.6):
                break
            times = int(self._random() * 4) if takes.endswith("*") else 1
            arguments += [self.of(takes.rstrip("?*"), depth) for _ in range(times)]
        if not self.chance(WRONG_COUNT):
            return arguments
        return arguments[:-1] if self.chance(0.5) else [*arguments, self.of("any", 0)]

    def _binary(self, kind: str, depth: int) -> Tree:
        operator = self.pick(_OPERATORS.get(kind, words.BINARY))
        if self.chance(0.2):
            operator = self.pick(words.BINARY)
        blank = " " if operator.isalpha() or self.chance(0.85) else ""
        sides = self._sides(operator, kind)
        left, right = (self._operand(side, depth) for side in sides)
        return Tree((left, f"{blank}{operator}{blank}", right))

    def _sides(self, operator: str, kind: str) -> tuple[str, str]:
        if operator in words.RELATIONS:
            side = self.pick(KINDS)
            return side, side
        if operator in ("&&", "||"):
            return "bool", "bool"
        if kind in ("time", "span"):
            return kind, "span"
        return "number", "number"

    def _operand(self, kind: str, depth: int) -> Tree:
        """Return an operand; without its parentheses, precedence decides what belongs together."""
        operand = self.of(kind, depth)
        return Tree(("(", operand, ")")) if self.chance(0.35) else operand

    def _unary(self, kind: str, depth: int) -> Tree:
        operator = self.pick(("!",) if kind == "bool" and self.chance(0.8) else words.UNARY)
        return Tree((operator + (" " if self.chance(0.2) else ""), self._operand(kind, depth)))

    def _ternary(self, kind: str, depth: int) -> Tree:
        test = self._operand("bool", depth)
        return Tree((test, " ? ", self._operand(kind, depth), " : ", self._operand(kind, depth)))

    def _elvis(self, kind: str, depth: int) -> Tree:
        gap = self.pick((" ?: ", "?:", " ? : "))
        other = self._operand(kind, depth)
        if not self._odd:  # a unary operator there would not parse
            other = Tree(("(", other, ")"))
        return Tree((self._operand(kind, depth), gap, other))

    def _selection(self, kind: str, depth: int) -> Tree:
        inner = self.record(depth) if self.chance(0.6) else self.name("record")
        name = self.pick(words.ATTRIBUTES.get(kind, words.NAMES))
        return Tree((Tree(("(", inner, ")")) if self.chance(0.1) else inner, f".{name}"))

    def _subscript(self, kind: str, depth: int) -> Tree:
        if self.chance(0.75):
            holder = self.series(kind, depth) if self.chance(0.7) else self.name("list")
            index = Tree((self.pick("0123"),)) if self.chance(0.8) else self.of("number", depth)
            return Tree((holder, "[", index, "]"))
        # Nothing is selected from such a value: that crashes the library.
        holder = self.record(depth) if self.chance(0.5) else self.name("record")
        return Tree((holder, f'["{self.pick(words.NAMES)}"]'))

    def _holding(self, kind: str, depth: int) -> Tree:
        return self.record(depth) if kind == "record" else self.series("any", depth)

    # --------------------------------------------------------------- arguments of their kind

    def _pattern(self, _depth: int) -> Tree:
        return Tree((pattern(self._random),), is_quoted=True)

    def _quoted(self, depth: int) -> Tree:
        return Tree((self.of("any", min(depth, 2)),), is_quoted=True)


_LEAVES: dict[str, Callable[[Grammar], Tree]] = {
    "number": Grammar._number,
    "string": Grammar._string,
    "bool": Grammar._bool,
    "list": lambda grammar: grammar.series("any", 0, 2),
    "record": lambda grammar: grammar.record(0),
    "time": Grammar._time,
    "span": Grammar._span,
}
_MAKERS: dict[str, Callable[[Grammar, int], Tree]] = {
    "pattern": Grammar._pattern,
    "quoted": Grammar._quoted,
    "name": lambda grammar, _depth: grammar.name(),
    "numbers": lambda grammar, depth: grammar.series("number", depth),
    "strings": lambda grammar, depth: grammar.series("string", depth),
    "ads": lambda grammar, depth: grammar.series("record", depth),
    "scalar": lambda grammar, depth: grammar.of(grammar.pick(KINDS[:3]), depth),
}
_SHAPES: tuple[Callable[[Grammar, str, int], Tree], ...] = (
    *(Grammar._call,) * 6,
    *(Grammar._binary,) * 5,
    *(Grammar._unary,) * 2,
    Grammar._ternary,
    Grammar._elvis,
    Grammar._selection,
    Grammar._subscript,
    Grammar._holding,
)
