"""Regular expressions of the syntax that RE2 and PCRE share."""

from __future__ import annotations

from collections.abc import Callable

from .trees import Tree

ATOMS = (
    *("a", "b", "c", "x", "1", "A", "\\.", "\\d", "\\w", "\\s", "\\D", "\\W", "\\S", ".", " "),
    *("[abc]", "[^a]", "[a-z]", "[A-Z0-9_]", "[.]", "\\b", "node", "-", "\\+", "[[:alpha:]]"),
)
REPEATS = ("*", "+", "?", "{2}", "{1,2}", "*?", "+?", "{0,3}", "??")


def pattern(chance: Callable[[], float], depth: int = 2) -> Tree:
    """Return a pattern; `chance` gives numbers in [0, 1)."""
    branches = [_branch(chance, depth) for _ in range(1 if chance() < 0.8 else 2)]
    start = "^" if chance() < 0.15 and depth == 2 else ""
    end = "$" if chance() < 0.15 and depth == 2 else ""
    return Tree((start, *branches, end), "|")


def _branch(chance: Callable[[], float], depth: int) -> Tree:
    return Tree(("", *(_piece(chance, depth) for _ in range(1 + int(chance() * 3))), ""), "")


def _piece(chance: Callable[[], float], depth: int) -> Tree:
    if depth > 0 and chance() < 0.25:
        opening = "(" if chance() < 0.8 else "(?:"
        atom = Tree((opening, pattern(chance, depth - 1), ")"))
    else:
        atom = Tree((ATOMS[int(chance() * len(ATOMS))],))
    if atom.text == "\\b" or chance() < 0.65:
        return atom
    return Tree((atom, REPEATS[int(chance() * len(REPEATS))]))
