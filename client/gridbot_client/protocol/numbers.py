"""Numbers in JSON that has been in PostgreSQL: `jsonb` writes the real 6.02e23 as 24 digits.

As an integer that is beyond what the protocol carries, and a client could not read its reply.
"""

from __future__ import annotations

import json
import re
from typing import Any

from gridbot_client.protocol.fields import MAX_BIGINT

_LONG = re.compile(r"[0-9]{19}")


def loads(text: str | bytes) -> Any:
    """Parse JSON; an integer that no database column holds is a real."""
    return json.loads(text, parse_int=_number)


def exact(text: str) -> str:
    """Return a JSON text in which reals look like reals."""
    return json.dumps(loads(text), separators=(",", ":")) if _LONG.search(text) else text


def _number(digits: str) -> int | float:
    number = int(digits)
    return number if abs(number) <= MAX_BIGINT else float(number)
