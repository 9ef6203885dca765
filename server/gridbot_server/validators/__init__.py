"""How two answers are compared, by the digests of their outputs: contents are not at hand here."""

from collections.abc import Callable, Mapping
from types import MappingProxyType

from gridbot_server.validators import exact

Validator = Callable[[bytes | None, bytes | None], bool]

# Name, as a BOT gives it -> whether two digests agree.  A name is never removed: BOTs have it.
VALIDATORS: Mapping[str, Validator] = MappingProxyType({"exact": exact.agree})
