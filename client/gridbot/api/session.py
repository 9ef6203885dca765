"""A scientist's view of one server: submit BOTs, follow them, take their results."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from gridbot.api.connection import Connection, patiently, quiet
from gridbot.api.errors import GridbotError, ServerAway
from gridbot.api.inputs import Progress
from gridbot.api.items import Items
from gridbot.api.policy import read_policy
from gridbot.api.results import Result, json_lines, result_of
from gridbot.api.state import BotState, bot_state
from gridbot.api.submission import Submission, prepare, send
from gridbot.show.printing import counted
from gridbot_client.net.discovery import NoServer, find_server
from gridbot_client.protocol.messages import Manifest

# Between two looks at a BOT: soon at first, because many are short, then seldom.
_FIRST_LOOK, _LAST_LOOK = 0.2, 3.0


def connect(server: str | None = None, key_file: str | Path | None = None) -> Session:
    """Return a session with a server; nothing is sent yet.

    Without arguments: GRIDBOT_SERVER and GRIDBOT_KEY, what `gridbot login` wrote, or a server
    of this user on this machine.  Raises GridbotError when none is known.
    """
    try:
        return Session(Connection(find_server(server, Path(key_file) if key_file else None)))
    except NoServer as error:
        raise GridbotError(str(error)) from None


class Session:
    """One server under one key.  Usable as a context manager."""

    def __init__(self, connection: Connection) -> None:
        self.connection = connection

    def __enter__(self) -> Session:
        return self

    def __exit__(self, *exception: object) -> None:
        self.connection.close()

    def submit(
        self,
        command: Sequence[str] | str,
        items: Items | range | Path | Iterable[object] | None = None,
        progress: Progress = quiet,
        **options: Any,
    ) -> Bot:
        """Create a BOT; `options` are the further fields of `Submission`.

        Everything is checked before anything is sent.  Raises BadInput, PolicyError or Refused.
        """
        prepared = prepare(Submission(command=command, items=items, **options))
        document = send(self.connection, prepared, progress)
        document["warnings"] = [*prepared.notes, *document.get("warnings", [])]
        return Bot(self.connection, document["id"], document)

    def bot(self, number: int) -> Bot:
        """The BOT of that number; whether it exists shows at the first call on it."""
        return Bot(self.connection, number)

    def bots(self, state: str | None = None, limit: int | None = None) -> list[BotState]:
        """The BOTs that this key may see, newest first."""
        found = self.connection.get("/bots", state=state, limit=limit)
        return [bot_state(document) for document in found["bots"]]


class Bot:
    """A BOT on the server.  `submitted` is what the server said at submission, else empty."""

    def __init__(
        self, connection: Connection, number: int, submitted: Mapping[str, Any] | None = None
    ) -> None:
        self.connection = connection
        self.id = number
        self.submitted: Mapping[str, Any] = submitted or {}
        self._path = f"/bots/{number}"

    def __repr__(self) -> str:
        return f"<Bot {self.id} at {self.connection.url}>"

    @property
    def warnings(self) -> Sequence[str]:
        """What the submission gave reason to say."""
        return tuple(self.submitted.get("warnings", ()))

    def show(self) -> BotState:
        """Its state now.  Raises NotFound."""
        return bot_state(self.connection.get(self._path))

    def wait(self, timeout: float | None = None) -> BotState:
        """Return its state when it has ended, through restarts of the server.

        Raises TimeoutError after `timeout` seconds; the BOT goes on all the same.
        """
        return deque(self.watch(timeout), maxlen=1)[0]

    def watch(
        self,
        timeout: float | None = None,
        told: Callable[[ServerAway], None] = quiet,
    ) -> Iterator[BotState]:
        """Yield its state again and again until it has ended; see `wait`."""
        ends_at = None if timeout is None else time.monotonic() + timeout
        look = _FIRST_LOOK
        while True:
            left = None if ends_at is None else max(0.0, ends_at - time.monotonic())
            state = patiently(self.show, _after(left), told)
            yield state
            if state.is_final:
                return
            if left == 0:
                raise TimeoutError(
                    f"bot {self.id} has {state.jobs_finished} of {counted(state.jobs_total, 'job')}"
                    f" after {timeout:g} s; it goes on"
                )
            time.sleep(look if left is None else min(look, left))
            look = min(look * 1.5, _LAST_LOOK)

    def results(
        self,
        follow: bool = False,
        after: int = 0,
        told: Callable[[ServerAway], None] = quiet,
    ) -> Iterator[Result]:
        """Yield finished jobs in the order in which they ended.

        `after` is the `n` of the last result that is known already.  With `follow` it goes on
        until the BOT has ended, through restarts of the server; `told` hears of these.
        """
        types = patiently(self._types, _after(None if follow else 30.0), told)
        look = _FIRST_LOOK
        while True:
            ended = not follow or patiently(self.show, _after(None), told).is_final
            last = after
            try:
                for row in json_lines(self.connection, f"{self._path}/results", after=after):
                    after = row["n"]
                    yield result_of(row, self.id, types, self.connection)
            except ServerAway as error:
                # Once something came, the next request resumes behind it.
                if not follow and after == last:
                    raise
                told(error)
                time.sleep(look)
                continue
            if after == last and ended:
                return
            if after == last:
                time.sleep(look)
            look = _FIRST_LOOK if after != last else min(look * 1.5, _LAST_LOOK)

    def columns(self) -> Sequence[str]:
        """The names of its jobs' arguments."""
        return tuple(self._types())

    def logs(self, seq: int | None = None, failed: bool = False) -> Iterator[dict[str, Any]]:
        """Yield ended replicas with the end of what they printed, as the server tells them."""
        how = "error" if failed else None
        return json_lines(self.connection, f"{self._path}/logs", seq=seq, how=how)

    def explain(self, host: str | int | None = None) -> dict[str, Any]:
        """What keeps known hosts, or one of them, from it, and what to relax."""
        document: dict[str, Any] = self.connection.get(f"{self._path}/explanation", host=host)
        return document

    def cancel(self) -> BotState:
        """Stop it; what has ended stays.  Safe to repeat."""
        return bot_state(self.connection.send("POST", f"{self._path}/cancel", {}))

    def delete(self) -> None:
        """Delete it, once it has ended, with its jobs and results.  Raises Refused or NotFound."""
        self.connection.send("DELETE", self._path)

    def retry(self) -> int:
        """Give the failed jobs new attempts; return how many there are."""
        retried: int = self.connection.send("POST", f"{self._path}/retry", {})["retried"]
        return retried

    def set(self, **changes: Any) -> BotState:
        """Change `policy` (text or Path), `name`, `max_attempts`, `max_replicas`,
        `tail_threshold`, `tail_sticky` or `failover_after`.  Raises PolicyError.
        """
        if "policy" in changes:
            changes["policy"] = read_policy(changes["policy"])
        return bot_state(self.connection.send("PATCH", self._path, changes))

    def _types(self) -> Mapping[str, str]:
        text = self.connection.get(f"{self._path}/manifest")["text"]
        return Manifest.from_text(text).placeholders


def _after(seconds: float | None) -> Callable[[float], bool]:
    return lambda waited: seconds is not None and waited >= seconds
