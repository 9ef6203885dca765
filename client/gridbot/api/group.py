"""Groups: a label over BOTs, with one stream of results, one way to cancel them, one share."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator
from functools import partial
from typing import TYPE_CHECKING, Any

from gridbot.api.connection import log_away, patiently
from gridbot.api.documents import GroupResultLine, GroupState
from gridbot.api.errors import BotHeld, ServerAway
from gridbot.api.following import follow_results, follow_state
from gridbot.api.results import Result, json_lines, result_of
from gridbot.api.state import BotState
from gridbot.printing import counted

if TYPE_CHECKING:
    from gridbot.api.bot import Bot
    from gridbot.api.session import Session

Told = Callable[[ServerAway], None]


class BotGroup:
    """BOTs of one owner that were submitted with the same label."""

    def __init__(self, session: Session, name: str, owner: str | None = None) -> None:
        self.name = name
        self._session, self._owner = session, owner
        self._path = f"/groups/{name}"
        self._types: dict[int, Any] = {}  # of placeholders, by BOT

    def __repr__(self) -> str:
        return f"<Group {self.name} at {self._session.connection.url}>"

    def submit(self, *args: Any, **options: Any) -> Bot:
        """Create a BOT in the group, which the first one makes; arguments as `Session.submit`."""
        return self._session.submit(*args, **options, group=self.name)

    def bots(self) -> list[BotState]:
        """Its BOTs, newest first.  Empty if there is none."""
        return self._session.bots(group=self.name)

    def show(self) -> GroupState:
        """Its state, as a document: BOTs, jobs, share.  Raises NotFound."""
        return self._show(0)

    def _show(self, wait: int) -> GroupState:
        asked = {"wait": wait} if wait else {}
        found: GroupState = self._session.connection.get(self._path, **asked, **self._whose())
        return found

    def cancel(self) -> GroupState:
        """Cancel the BOTs that are in it now.  Idempotent."""
        return self._send("POST", f"{self._path}/cancel", {})

    def set_share(self, share: float | None) -> GroupState:
        """Give it a share of its owner's hosts, beside other groups that have one; None: none.

        All other BOTs of the owner have a share of 1 together.
        """
        return self._send("PATCH", self._path, {"share": share})

    def _send(self, method: str, path: str, body: Any) -> GroupState:
        whose = f"?owner={self._owner}" if self._owner else ""
        found: GroupState = self._session.connection.send(method, f"{path}{whose}", body)
        return found

    def results(
        self, follow: bool = False, after: int = 0, told: Told = log_away
    ) -> Iterator[Result]:
        """Yield finished jobs of all its BOTs in the order of their end; `Result.bot` says whose.

        `after` is the `n` of the last result already received; it stays right when BOTs come into
        the group later.  With `follow`, wait for further results until all its BOTs have ended,
        and raise BotHeld once those that have not are held.
        """
        return follow_results(
            self._read, partial(self._has_ended, told), after=after, follow=follow, told=told
        )

    def wait(self, timeout: float | None = None, told: Told = log_away) -> GroupState:
        """Wait until all its BOTs have ended or are held, and return its state.

        Raises TimeoutError after `timeout` seconds; the BOTs keep running.
        """
        return deque(self.watch(timeout, told), maxlen=1)[0]

    def watch(self, timeout: float | None = None, told: Told = log_away) -> Iterator[GroupState]:
        """Yield its state now and then, until all its BOTs have ended or are held."""
        return follow_state(
            self._show,
            lambda state: state["bots_unfinished"] == state["bots_held"],
            lambda state: (
                f"group {self.name} has {state['jobs_done'] + state['jobs_failed']} of"
                f" {counted(state['jobs_total'], 'job')}"
            ),
            timeout=timeout,
            told=told,
        )

    def _read(self, after: int, wait: int) -> Iterator[Result]:
        asked = {"after": after, **({"wait": wait} if wait else {}), **self._whose()}
        rows: Iterator[GroupResultLine] = json_lines(
            self._session.connection, f"{self._path}/results", **asked
        )
        for row in rows:
            yield result_of(row, row["bot"], self._types_of(row), self._session.connection)

    def _types_of(self, row: GroupResultLine) -> Any:
        """Types of the placeholders, which matter to texts only: those may be numbers."""
        bot = row["bot"]
        if bot not in self._types and any(isinstance(arg, str) for arg in row["args"].values()):
            self._types[bot] = self._session.bot(bot).types()
        return self._types.get(bot, {})

    def _has_ended(self, told: Told) -> bool:
        state = patiently(self.show, told)
        if state["bots_unfinished"] != state["bots_held"]:
            return False
        if not state["bots_held"]:
            return True
        held = [bot for bot in self.bots() if bot.is_held]
        if any(bot.jobs_in_progress for bot in held):
            return False
        raise BotHeld(
            f"{counted(len(held), 'BOT')} of group {self.name} held, and the others have ended;"
            f" for the reasons: gridbot group show {self.name}"
        )

    def _whose(self) -> dict[str, str]:
        return {"owner": self._owner} if self._owner else {}
