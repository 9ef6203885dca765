"""How two outputs are compared.  To add a way, write a module like `exact` and a line here."""

from collections.abc import Callable, Mapping
from types import MappingProxyType

from gridbot_server.validators import exact

Validator = Callable[[bytes | None, bytes | None], bool]

# Name, as a BOT gives it -> whether the outputs behind two digests agree.
VALIDATORS: Mapping[str, Validator] = MappingProxyType({"exact": exact.agree})
