"""Further copies on their way between the queue in the database and the buffer (paper 6.2)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import timedelta
from typing import Any, NamedTuple

import orjson

from gridbot_client.protocol.messages import WHY, ReplicaId
from gridbot_server.buffer.assignment import prepared
from gridbot_server.buffer.interface import Buffer
from gridbot_server.buffer.layout import SLOT_BYTES, Item, Slot, SlotState
from gridbot_server.feeder.electors import Electors
from gridbot_server.feeder.running import RunningBot
from gridbot_server.storage import siblings, sql
from gridbot_server.storage.db import Connection
from gridbot_server.storage.job_proofs import read_jobs
from gridbot_server.storage.rows import JobId, JobTexts, encode, fetch

SQL = sql.load("feeder.sql")

LIFETIME = timedelta(seconds=10)  # of a copy's slot: its siblings' ads grow stale
_MOST_FAILED = 8  # hosts that are named; more than one matter only if all belong to one owner
PER_BOT = 128  # that a BOT may have in the buffer, however few are taken


class _Copy(NamedTuple):
    """A row of `requeue` that was claimed for this machine."""

    bot: int
    seq: int
    replica: int
    round: int
    why: str
    pool: str | None
    vain: int  # draws of crews that did not come for it


def lacking(bot: RunningBot, there: int, taken: int, kept: int = 0) -> int:
    """How many copies to bring of a BOT that has `there` in the buffer, less than half of enough.

    Enough are few, because each goes stale in the buffer, or what will be taken until the next
    pass: twice as many slots as were `taken` since the last one.  Where they are kept for those
    that are drawn, `kept` at least.
    """
    enough = max(PER_BOT, 2 * taken, kept if bot.is_assured else 0)
    return min(enough, bot.state.copies_unsent) - there if there < enough / 2 else 0


def forget_claims(conn: Connection, buffer: Buffer) -> None:
    """Give up the copies that an earlier feeder of this machine had claimed."""
    conn.execute(SQL["unclaim_all"], {"machine": buffer.machine})
    buffer.withdraw([slot for slot in buffer.contents() if slot.detail])


def withdraw_stale(
    conn: Connection,
    buffer: Buffer,
    contents: Sequence[Slot],
    electors: Electors,
    now: float,
) -> None:
    """Return copies to the queue when their time to live, or for those drawn, is over."""
    born, drawn = now - LIFETIME.total_seconds(), now - electors.patience
    stale = [
        slot
        for slot in contents
        if slot.detail
        and slot.state is SlotState.READY
        and slot.loaded_at < (drawn if slot.drawn > 0 else born)
    ]
    names = [
        {"bot": slot.bot, "seq": slot.seq, "replica": slot.replica, "vain": int(slot.drawn > 0)}
        for slot in buffer.withdraw(stale)
    ]
    if names:
        given = {"copies": encode(names), "machine": buffer.machine}
        conn.execute(SQL["unclaim_copies"], given)


def put(
    conn: Connection,
    buffer: Buffer,
    bots: Mapping[int, RunningBot],
    taken: Mapping[int, int],
    electors: Electors,
    now: float,
) -> int:
    """SlotClaim copies of BOTs that have less than half of what they should; return how many.

    `taken` is the slots of each BOT that were taken since the last pass.
    """
    there = {item.state.bot: item.copies for item in buffer.segments()}
    missing = {
        bot: lacking(item, there.get(bot, 0), taken.get(bot, 0), electors.kept(buffer.slots))
        for bot, item in bots.items()
    }
    room = buffer.room
    wanted = [bot for bot, count in missing.items() if count > 0][:room]
    if not wanted:
        return 0
    claims = [{"bot": bot, "most": min(missing[bot], room // len(wanted))} for bot in wanted]
    arguments = {"claims": encode(claims), **_claim(buffer, electors)}
    claimed = fetch(conn, _Copy, SQL["claim_copies"], arguments)
    return buffer.put(_items(conn, buffer, bots, claimed, electors), now) if claimed else 0


def put_these(
    conn: Connection,
    buffer: Buffer,
    bots: Mapping[int, RunningBot],
    names: Sequence[ReplicaId],
    electors: Electors,
    now: float,
) -> int:
    """Claim and put in these copies, as long as there is room; return how many."""
    wanted = names[: buffer.room]
    if not wanted:
        return 0
    listed = encode([name._asdict() for name in wanted])
    arguments = {"copies": listed, **_claim(buffer, electors)}
    claimed = fetch(conn, _Copy, SQL["claim_these"], arguments)
    return buffer.put(_items(conn, buffer, bots, claimed, electors), now) if claimed else 0


def _claim(buffer: Buffer, electors: Electors) -> dict[str, Any]:
    """Who claims copies, and for how long."""
    lifetime = 3 * max(LIFETIME, timedelta(seconds=electors.patience))
    return {"machine": buffer.machine, "lifetime": lifetime}


def _items(
    conn: Connection,
    buffer: Buffer,
    bots: Mapping[int, RunningBot],
    claimed: Sequence[_Copy],
    electors: Electors,
) -> list[Item]:
    jobs = sorted({(copy.bot, copy.seq) for copy in claimed})
    details = siblings.describe(conn, jobs)
    texts = read_jobs(conn, jobs)
    room = buffer.slot_bytes - SLOT_BYTES
    return [
        Item(
            copy.bot,
            copy.seq,
            copy.replica,
            # What was queued meanwhile for an earlier version is sent with this one.
            max(copy.round, bots[copy.bot].state.first_round),
            WHY.index(copy.why),
            _body(copy, bots[copy.bot].manifest_id, texts[JobId(copy.bot, copy.seq)]),
            _detail(details[copy.bot, copy.seq], copy.pool, room),
            electors.draw(conn, bots[copy.bot], _owners(details[copy.bot, copy.seq]), copy.vain),
        )
        for copy in claimed
    ]


def _body(copy: _Copy, manifest: str, job: JobTexts) -> bytes:
    return prepared(ReplicaId(copy.bot, copy.seq, copy.replica), manifest, *job[2:])


def _owners(detail: Mapping[str, Any]) -> set[int]:
    return {owner for _, owner in detail["holders"]}


def _detail(detail: Mapping[str, Any], pool: str | None, room: int) -> bytes:
    """Return the detail of a slot as JSON, as `dispatch.view` reads it.

    The latest replicas are left out if it is too long.
    """
    replicas = list(detail["replicas"])
    failed = detail["failed"][:_MOST_FAILED]
    while True:
        text = orjson.dumps(
            {
                "holders": detail["holders"],
                "failed": failed,
                "replicas": replicas,
                "pool": pool,
                "kind": detail["kind"],
            }
        )
        if len(text) <= room or not replicas:
            return text
        replicas.pop()
