"""The built-in functions, by case-folded name.

To add one, write it in the module of its kind, `def f(call, *values) -> Value`,
and enter it in that module's TABLE with the number of arguments it takes.
"""

from collections.abc import Mapping
from types import MappingProxyType

from gridbot_policies.classad.functions import lists, numbers, regex, strings, times, types
from gridbot_policies.classad.functions.call import Call, Function

FUNCTIONS: Mapping[str, Function] = MappingProxyType(
    {
        **types.TABLE,
        **numbers.TABLE,
        **lists.TABLE,
        **strings.TABLE,
        **regex.TABLE,
        **times.TABLE,
    }
)

__all__ = ["FUNCTIONS", "Call", "Function"]
