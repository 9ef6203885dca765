"""Cases by number: the same seed and number give the same case."""

from __future__ import annotations

import random
import re
from functools import lru_cache

from . import vocabulary as words
from .cases import Case, asks_the_clock
from .grammar import Grammar
from .trees import Tree

SHARING = 20  # cases that have the same two ads, because ads take the longest to read
MUTATED = 0.12  # share of cases whose tokens are shaken, for the sake of the parser
_TOKEN = re.compile(
    r"""\s+|"(?:\\.|[^"\\])*"|'(?:\\.|[^'\\])*'|\w+|=\?=|=!=|>>>|\?:|&&|\|\||<<|>>|[<>=!]=|.""",
    re.DOTALL,
)


def case(seed: int, number: int, mode: str) -> Case:
    """Return the case of that number."""
    name = f"{seed}:{number}"
    draw = random.Random(name)
    grammar = Grammar(draw)
    my, target = _ads(f"{seed}:ads:{number // SHARING}")
    place = draw.random()
    if place < 0.15:
        my = target = None
    elif place < 0.45:
        target = None
    expression = grammar.expression()
    if draw.random() < MUTATED:
        expression = _shaken(expression, draw)
    return Case(name, mode, my, target, expression)


@lru_cache(maxsize=8)
def _ads(name: str) -> tuple[Tree | None, Tree | None]:
    draw = random.Random(name)
    return _ad(draw), _ad(draw)


def _ad(draw: random.Random) -> Tree:
    """An ad with some of the names that expressions use, mostly of the kinds they expect."""
    grammar = Grammar(draw, sound=True)
    attributes = [
        Tree((f"{name} = ", _value(grammar, kind, draw)))
        for kind, names in words.ATTRIBUTES.items()
        for name in names
        if draw.random() < 0.55
    ]
    draw.shuffle(attributes)
    return Tree(("[", *attributes, "]"), "; ")


def _value(grammar: Grammar, kind: str, draw: random.Random) -> Tree:
    if kind == "any" and draw.random() < 0.3:
        return grammar.name()  # these refer to each other, often in circles
    return grammar.of(kind, draw.choice((0, 0, 0, 1, 1, 2)))


def _shaken(expression: Tree, draw: random.Random) -> Tree:
    """Lose, repeat, swap, replace or insert a few tokens."""
    tokens = _TOKEN.findall(expression.text)
    for _ in range(draw.randint(1, 3)):
        place = draw.randrange(len(tokens) + 1)
        change = draw.randrange(5)
        if change == 0:
            del tokens[place : place + 1]
        elif change == 1:
            tokens[place:place] = tokens[place : place + 1]
        elif change == 2:
            tokens[place : place + 2] = reversed(tokens[place : place + 2])
        else:
            tokens[place : place + change - 3] = [draw.choice(words.TOKENS)]
    if asks_the_clock("".join(tokens)):
        return expression
    return Tree(("", *(Tree((token,)) for token in tokens), ""), "")
