"""The comparison cycle: compares contents that the transitioner asked for, in a pool of processes.

What is due stands in the database, and so does what was found: a comparison that a crash of ours
interrupted is made again, and none whose finding is written.  One owner's comparisons leave a
process of the pool to others.
"""

from __future__ import annotations

import time
from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, wait
from pathlib import Path
from typing import NamedTuple

from gridbot_server.cycles.comparison_pool import ComparisonOrder, ComparisonPool, ContentVerdict
from gridbot_server.cycles.confined import ConfinedCommand
from gridbot_server.storage import sql
from gridbot_server.storage.db import Connection
from gridbot_server.storage.files import Store
from gridbot_server.storage.rows import encode, fetch
from gridbot_server.validators.compare import Answer, AnswerFile
from gridbot_server.validators.spec import parse

SQL = sql.load("comparisons.sql")

CRASHES = 2  # after which a comparison is given up
PASS_SECONDS = 2.0  # after which a pass ends, although comparisons go on
_AT_ONCE = 16  # comparisons of one owner that a process gets together
_LIMIT = 1024  # that are looked at


class _Due(NamedTuple):
    """Two answers of a job to be compared, by their digests."""

    bot: int
    seq: int
    one: bytes
    other: bytes
    validator: str
    owner: int
    program: bytes | None  # hash of the program that compares, if the BOT brought one

    @property
    def names(self) -> dict[str, int | str]:
        """As statements take it."""
        return {
            "bot": self.bot, "seq": self.seq, "one": self.one.hex(), "other": self.other.hex(),
        }  # fmt: skip


class _File(NamedTuple):
    """An output of an answer."""

    bot: int
    seq: int
    digest: bytes
    name: str
    sha256: bytes
    size: int
    content: bytes | None  # None: it lies in the file store


class Comparing:
    """The cycle; it has a state only for what goes on in its pool."""

    def __init__(self, store: Store, workers: int, folder: Path) -> None:
        self._store = store
        self._pool = ComparisonPool(workers, folder)
        self._running: dict[Future[list[ContentVerdict]], Sequence[_Due]] = {}

    def close(self) -> None:
        """End all comparisons; they stay due."""
        self._pool.close()

    def run_once(self, conn: Connection) -> int:
        """Compare what is due, until nothing is or the pass is long; return how many were."""
        end, count = time.monotonic() + PASS_SECONDS, 0
        self._begin(conn)
        while self._running and time.monotonic() < end:
            done, _ = wait(self._running, timeout=PASS_SECONDS, return_when=FIRST_COMPLETED)
            count += self._settle(conn, done)
            self._begin(conn)
        return count

    def _begin(self, conn: Connection) -> None:
        """Fill the pool."""
        if len(self._running) >= self._pool.workers:
            return
        going = {due[:4] for batch in self._running.values() for due in batch}
        most = _AT_ONCE * self._pool.workers
        values = {"most": most, "limit": _LIMIT}
        due = [item for item in fetch(conn, _Due, SQL["due"], values) if item[:4] not in going]
        if not due:
            return
        busy = Counter(batch[0].owner for batch in self._running.values())
        for batch in self._chosen(due, busy):
            self._running[self._pool.submit(self._orders(conn, batch))] = batch

    def _chosen(self, due: Sequence[_Due], busy: Counter[int]) -> list[Sequence[_Due]]:
        """Batches for the processes that are free, of as many owners as there are."""
        by_owner: dict[int, list[_Due]] = defaultdict(list)
        for item in due:
            by_owner[item.owner].append(item)
        waiting = {
            owner: [items[at : at + _AT_ONCE] for at in range(0, len(items), _AT_ONCE)]
            for owner, items in by_owner.items()
        }
        most, chosen = max(1, self._pool.workers - 1), list[Sequence[_Due]]()
        while len(self._running) + len(chosen) < self._pool.workers:
            free = [owner for owner, items in waiting.items() if items and busy[owner] < most]
            if not free:
                break
            owner = min(free, key=lambda owner: busy[owner])
            busy[owner] += 1
            chosen.append(waiting[owner].pop(0))
        return chosen

    def _orders(self, conn: Connection, batch: Sequence[_Due]) -> list[ComparisonOrder]:
        named = {"comparisons": encode([item.names for item in batch])}
        answers: dict[tuple[int, int, bytes], dict[str, AnswerFile]] = defaultdict(dict)
        sizes: Counter[tuple[int, int, bytes]] = Counter()
        for file in fetch(conn, _File, SQL["files"], named):
            key, sha256 = (file.bot, file.seq, file.digest), file.sha256.hex()
            path = "" if file.content is not None else str(self._store.local(sha256))
            answers[key][file.name] = AnswerFile(sha256, path, file.content)
            sizes[key] += file.size
        return [self._order(item, answers, sizes) for item in batch]

    def _order(
        self,
        due: _Due,
        answers: Mapping[tuple[int, int, bytes], Answer],
        sizes: Mapping[tuple[int, int, bytes], int],
    ) -> ComparisonOrder:
        one, other = (due.bot, due.seq, due.one), (due.bot, due.seq, due.other)
        size = sizes.get(one, 0) + sizes.get(other, 0)
        return ComparisonOrder(
            due.validator, answers.get(one, {}), answers.get(other, {}), size, self._command(due)
        )

    def _command(self, due: _Due) -> ConfinedCommand | None:
        if due.program is None:
            return None
        argv = parse(due.validator).argv
        path = self._store.local(due.program.hex())
        return ConfinedCommand(path, parse(due.validator).program, argv[1:])

    def _settle(self, conn: Connection, done: set[Future[list[ContentVerdict]]]) -> int:
        rows = []
        for future in done:
            batch, findings = self._running.pop(future), future.result()
            rows += [
                {**item.names, **finding._asdict()}
                for item, finding in zip(batch, findings, strict=True)
            ]
        if rows:
            with conn.transaction():
                conn.execute(SQL["settle"], {"findings": encode(rows), "crashes": CRASHES})
        return len(rows)
