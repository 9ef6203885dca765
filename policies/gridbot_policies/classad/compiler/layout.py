"""Where compiled code finds the ads that the walker finds by climbing from scope to scope."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass


def always(_name: str) -> bool:
    """Hold any name."""
    return True


@dataclass(frozen=True, slots=True)
class Layer:
    """An ad that names are sought in, known at run time only.

    `path` is Python text that yields its attributes from the variable `ads`; `holds` tells
    which names it may carry at all, `always_holds` lists those that it never lacks.
    """

    path: str
    holds: Callable[[str], bool] = always
    always_holds: frozenset[str] = frozenset()


@dataclass(frozen=True, slots=True)
class Layout:
    """Which ads a compiled expression finds around it.

    `chain`: where a bare name is sought, innermost first, after the expression's own ad.
    `ads`: the names of whole ads, each with the chain for names that are selected from it.
    They stand outermost, so no layer may hold one of these names.
    """

    chain: tuple[Layer, ...]
    ads: Mapping[str, tuple[Layer, ...]]
