"""From expressions to Python functions: the same values as the walker's, sooner.

Only what policies commonly do is compiled: names whose ads are known beforehand, operators,
conditions, functions of values.  What else an expression has is not compiled, and what else an
ad may hold is asked of the walker.  So there is one semantics, the walker's, and a short cut.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from typing import Any

from gridbot_policies.classad.compiler.code import NotCompilable
from gridbot_policies.classad.compiler.layout import Layer, Layout
from gridbot_policies.classad.compiler.program import Program
from gridbot_policies.classad.compiler.support import Meter
from gridbot_policies.classad.nodes import Node
from gridbot_policies.classad.values import Value, fold

__all__ = ["Evaluator", "Layer", "Layout", "Meter", "compile_attributes"]

Evaluator = Callable[[Any], Value]
"""Returns the value of one attribute among ads, in the form that a layout describes.

The ads have two attributes more: `meter`, None at first, and `steps`, to which each evaluation adds
what its code takes; what functions take, the meter counts."""


def compile_attributes(
    names: Iterable[str],
    own: Mapping[str, Node | Value],
    layout: Layout,
    walk: Callable[[str, Any], Value],
) -> dict[str, Evaluator]:
    """Return a function for each of these attributes of the ad `own` that can be compiled.

    `walk(name, ads)` is asked for what turns out to be beyond the code.
    """
    program = Program(own, layout, walk)
    entries: dict[str, str] = {}
    for name in names:
        with suppress(NotCompilable):
            entries[name] = program.entry(fold(name))
    code = compile("\n".join(program.source), "<policies>", "exec")
    exec(code, program.namespace)  # noqa: S102  # our own text; constants are passed by reference
    return {name: program.namespace[entry] for name, entry in entries.items()}
