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
    from gridbot.api.bot import Bot
    from gridbot.api.errors import (
        BadInput,
        BotHeld,
        GridbotError,
        NotFound,
        PolicyError,
        Refused,
        ServerAway,
    )
    from gridbot.api.group import BotGroup
    from gridbot.api.programs import PlatformProgram
    from gridbot.api.results import OutputFile, Real, Result
    from gridbot.api.session import Session, connect
    from gridbot.api.state import BotState
    from gridbot.api.submission import Submission
    from gridbot.executor.calls import JobFailed, RemoteError
    from gridbot.executor.executor import BrokenGridbot, Executor
    from gridbot.flow.flow import Flow, FlowFailed
    from gridbot.flow.steps import Step

__all__ = [
    "BadInput",
    "Bot",
    "BotGroup",
    "BotHeld",
    "BotState",
    "BrokenGridbot",
    "Executor",
    "Flow",
    "FlowFailed",
    "GridbotError",
    "JobFailed",
    "NotFound",
    "OutputFile",
    "PlatformProgram",
    "PolicyError",
    "Real",
    "Refused",
    "RemoteError",
    "Result",
    "ServerAway",
    "Session",
    "Step",
    "Submission",
    "connect",
]

_MODULES = (
    "api.errors",
    "api.group",
    "api.programs",
    "api.results",
    "api.bot",
    "api.session",
    "api.state",
    "api.submission",
    "executor.executor",
    "executor.calls",
    "flow.flow",
    "flow.steps",
)


def __getattr__(name: str) -> object:
    """Import the API at its first use, so that `gridbot --help` stays fast."""
    if name in __all__:
        for module in _MODULES:
            found = vars(importlib.import_module(f"gridbot.{module}"))
            if name in found:
                return found[name]
    raise AttributeError(f"module 'gridbot' has no attribute {name!r}")
