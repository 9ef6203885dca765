"""Texts that know their parts, so that a text that shows a disagreement can be made smaller."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

ATOMS = ("1", "undefined", '"a"', "true", "2.5", "a")


@dataclass(frozen=True, slots=True)
class Tree:
    """A text in parts, of which those that are trees can stand alone.

    Where the tree has a `separator` it stands between the parts, and any of them can be left out;
    the first and the last then are the brackets.
    """

    parts: tuple[str | Tree, ...]
    separator: str | None = None
    is_quoted: bool = False  # a string literal, whose value is the text of the parts

    @property
    def text(self) -> str:
        texts = [part if isinstance(part, str) else part.text for part in self.parts]
        if self.is_quoted:
            return quoted("".join(texts))
        if self.separator is None:
            return "".join(texts)
        return texts[0] + self.separator.join(texts[1:-1]) + texts[-1]

    @property
    def inner(self) -> tuple[Tree, ...]:
        """The parts that are trees."""
        return tuple(part for part in self.parts if isinstance(part, Tree))


def quoted(text: str) -> str:
    """Return the string literal that stands for `text`."""
    return '"' + text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n") + '"'


def smaller(tree: Tree) -> Iterator[Tree]:
    """Yield shorter texts that keep some of the tree, the boldest first."""
    yield from tree.inner
    # The value of an attribute, without its name.
    yield from (part for each in tree.inner for part in each.inner)
    length = len(tree.text)
    yield from (Tree((atom,)) for atom in ATOMS if len(atom) < length)
    yield from reduced(tree)


def reduced(tree: Tree) -> Iterator[Tree]:
    """Yield shorter texts that are built as the tree is."""
    if tree.separator is not None:
        last = len(tree.parts) - 1
        # Half of them at a time, then a quarter, …, then each.
        size = last - 1
        while size > 0:
            for start in range(1, last, size):
                end = min(start + size, last)
                yield replace(tree, parts=tree.parts[:start] + tree.parts[end:])
            size //= 2
    for position, part in enumerate(tree.parts):
        if isinstance(part, Tree):
            for less in smaller(part):
                parts = (*tree.parts[:position], less, *tree.parts[position + 1 :])
                yield replace(tree, parts=parts)
