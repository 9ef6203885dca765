from pathlib import Path

from tests.db.dispatching import Caller, Dispatch
from tests.factories import make_bot

from gridbot_client.protocol.messages import WHY
from gridbot_server.buffer.buffer import SchedulingBuffer
from gridbot_server.buffer.layout import BotSnapshot, Item
from gridbot_server.dispatch.choose import COPIES_PER_REQUEST
from gridbot_server.dispatch.view import View, Views, WaitingCopies
from gridbot_server.storage.db import PostgresConnection

POLICY = "Concurrency = 1000"
DETAIL = b'{"holders":[],"failed":[],"replicas":[],"pool":null}'
MORE = 6  # copies beyond those that one request looks at
MINE, OTHER = 7, 8  # generations of web processes


def waiting(path: Path) -> tuple[SchedulingBuffer, WaitingCopies]:
    buffer = SchedulingBuffer.create(
        path, slots=COPIES_PER_REQUEST + MORE, slot_bytes=256, machine="m", database="d"
    )
    state = BotSnapshot(
        1, version=1, owner=1, size=100, fresh_unsent=0, copies_unsent=100, running=0, done=0,
        failed=0, tail=True, created_at=0.0, mean_turnaround=None,
    )  # fmt: skip
    buffer.publish([state], 0.0, 0)
    why = WHY.index("quorum")
    buffer.put([Item(1, seq, 2, 0, why, b"body", DETAIL) for seq in range(buffer.slots)], 0.0)
    return buffer, WaitingCopies(buffer, buffer.segments()[0], 0, 0.0)


def test_copies_beyond_those_looked_at_are_seen_once_all_of_these_were_taken(
    tmp_path: Path,
) -> None:
    _, copies = waiting(tmp_path / "buffer")
    first = copies()
    assert len(first) == COPIES_PER_REQUEST
    assert len(copies.take([copy.slot for copy in first[1:]], MINE)) == COPIES_PER_REQUEST - 1
    assert (copies(), copies.left) == (first[:1], MORE + 1)
    copies.take([first[0].slot], MINE)
    assert [copy.seq for copy in copies()] == [
        *range(COPIES_PER_REQUEST, COPIES_PER_REQUEST + MORE)
    ]


def test_a_copy_that_another_process_took_is_not_offered_again(tmp_path: Path) -> None:
    buffer, copies = waiting(tmp_path / "buffer")
    one, other = (copy.slot for copy in copies()[:2])
    buffer.take_copies([one], OTHER)
    assert copies.take([one, other], MINE) == [other]
    assert {one.seq, other.seq}.isdisjoint(copy.seq for copy in copies())


def told(seen: View) -> object:
    """What a view says of BOTs, as far as it can be compared."""
    return (
        {
            bot: (item.fresh, item.dry, bool(item.copies), item.running, item.group_usage,
                  item.ad.attributes)
            for bot, item in seen.candidates.items()
        },
        seen.queue.attributes, seen.usage, seen.among_strangers, seen.is_low, {*seen.gangs},
    )  # fmt: skip


def test_a_view_made_from_the_last_one_is_as_if_made_anew(
    dispatch: Dispatch, conn: PostgresConnection, alice: int, client: Caller
) -> None:
    bots = [make_bot(conn, alice, jobs=40, policy=POLICY) for _ in range(3)]
    views = Views()

    def check(now: float) -> None:
        segments = dispatch.buffer.segments()
        found = views.look(conn, dispatch.buffer, segments, 0, now)
        assert told(found) == told(Views().look(conn, dispatch.buffer, segments, 0, now))

    check(0.0)
    dispatch.feed()
    check(10.0)
    client.ask(5)
    check(20.0)
    dispatch.feed()
    conn.execute("UPDATE bot SET state = 'cancelled' WHERE id = %s", [bots[0]])
    dispatch.feed()
    check(30.0)
    bots.append(make_bot(conn, alice, jobs=2, policy=POLICY))
    dispatch.feed()
    client.ask(50)
    check(40.0)


def test_candidates_that_nothing_touched_stay_the_same(
    dispatch: Dispatch, conn: PostgresConnection, alice: int, client: Caller
) -> None:
    first, second = (make_bot(conn, alice, jobs=9, policy=POLICY) for _ in range(2))
    dispatch.feed()
    views = Views()
    before = dict(views.look(conn, dispatch.buffer, dispatch.buffer.segments(), 0, 0.0).candidates)
    client.ask(1)
    after = views.look(conn, dispatch.buffer, dispatch.buffer.segments(), 0, 9.0).candidates
    assert after[second] is before[second]
    assert (before[first].fresh, after[first].fresh) == (9, 8)


def test_once_the_last_group_with_a_share_is_over_usage_of_groups_matters_to_no_bot(
    dispatch: Dispatch, conn: PostgresConnection, alice: int, client: Caller
) -> None:
    grouped, other = (make_bot(conn, alice, jobs=9, policy=POLICY) for _ in range(2))
    conn.execute(
        "WITH made AS (INSERT INTO bot_group (owner, name, share) VALUES (%s, 'g', 1)"
        " RETURNING id) UPDATE bot SET bot_group = made.id FROM made WHERE bot.id = %s",
        [alice, grouped],
    )
    dispatch.feed()
    client.ask(12)
    dispatch.feed()
    views = Views()

    def usage() -> float:
        segments = dispatch.buffer.segments()
        return views.look(conn, dispatch.buffer, segments, 0, 0.0).candidates[other].group_usage

    assert usage() > 0
    conn.execute("UPDATE bot SET state = 'cancelled' WHERE id = %s", [grouped])
    dispatch.feed()
    assert usage() == 0
