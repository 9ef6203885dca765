"""The Python API for scientists, and the command `gridbot`.

>>> import gridbot                                              # doctest: +SKIP
>>> session = gridbot.connect()
>>> bot = session.submit(["./prog", "{}"], items=range(100))
>>> for result in bot.results(follow=True):
...     print(result.args["i"], result.stdout)
"""

import importlib
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from gridbot.api.errors import (
        BadInput,
        GridbotError,
        NotFound,
        PolicyError,
        Refused,
        ServerAway,
    )
    from gridbot.api.results import OutputFile, Real, Result
    from gridbot.api.session import Bot, Session, connect
    from gridbot.api.state import BotState
    from gridbot.api.submission import Submission

__all__ = [
    "BadInput",
    "Bot",
    "BotState",
    "GridbotError",
    "NotFound",
    "OutputFile",
    "PolicyError",
    "Real",
    "Refused",
    "Result",
    "ServerAway",
    "Session",
    "Submission",
    "connect",
]

_MODULES = ("errors", "results", "session", "state", "submission")


def __getattr__(name: str) -> object:
    """Import the API at its first use, so that `gridbot --help` stays fast."""
    if name in __all__:
        for module in _MODULES:
            found = vars(importlib.import_module(f"gridbot.api.{module}"))
            if name in found:
                return found[name]
    raise AttributeError(f"module 'gridbot' has no attribute {name!r}")
