"""Cases: an expression, the ads it is evaluated between, and which library mode decides."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, replace

from .trees import Tree, reduced, smaller

# MY, TARGET and the expression, as texts.
Texts = tuple[str | None, str | None, str]


@dataclass(frozen=True, slots=True)
class Case:
    """One expression between two ads or fewer; `seed` and `mode` are enough to make it again."""

    seed: str
    mode: str
    my: Tree | None
    target: Tree | None
    expression: Tree

    @property
    def texts(self) -> Texts:
        my = None if self.my is None else self.my.text
        target = None if self.target is None else self.target.text
        return my, target, self.expression.text

    @property
    def size(self) -> int:
        return sum(len(text or "") for text in self.texts)

    def smaller(self) -> Iterator[Case]:
        """Yield shorter cases, the boldest first."""
        if self.target is not None:
            yield replace(self, target=None)
        if self.my is not None:
            yield replace(self, my=None, target=None)
        for expression in smaller(self.expression):
            yield replace(self, expression=expression)
        for my in reduced(self.my) if self.my is not None else ():
            yield replace(self, my=my)
        for target in reduced(self.target) if self.target is not None else ():
            yield replace(self, target=target)


_ASKS_THE_CLOCK = re.compile(r"\b(abstime|formattime)\b(?!\s*\(\s*[^\s/)])", re.IGNORECASE)


def asks_the_clock(text: str) -> bool:
    """Tell whether a function may be called without the argument that makes it independent."""
    return _ASKS_THE_CLOCK.search(text) is not None
