"""The built-in functions, by case-folded name.

None reads a clock, draws a random number or looks at anything but its arguments and what the
CallContext offers: the same ads give the same value. What each does is paid from the budget.

To add one, write it in the module of its kind, `def f(call, *values) -> Value`,
and enter it in that module's TABLE with the number of arguments it takes.
"""

from collections.abc import Mapping
from types import MappingProxyType

from gridbot_policies.classad.functions import (
    lists,
    numbers,
    plumbing,
    references,
    regex,
    strings,
    times,
    types,
)
from gridbot_policies.classad.functions.call import CallContext, Function

FUNCTIONS: Mapping[str, Function] = MappingProxyType(
    {
        **types.TABLE,
        **numbers.TABLE,
        **lists.TABLE,
        **strings.TABLE,
        **regex.TABLE,
        **times.TABLE,
        **plumbing.TABLE,
        **references.TABLE,
    }
)

__all__ = ["FUNCTIONS", "CallContext", "Function"]
