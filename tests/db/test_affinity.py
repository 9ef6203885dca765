"""Claims about hosts that hold inputs of BOTs, and policies that look at that."""

from __future__ import annotations

import hashlib
from dataclasses import replace

import pytest
from tests.db.dispatching import Caller, Dispatch, caller, success
from tests.factories import make_bot, make_owner

from gridbot_client.protocol.cached import MAX_TOLD, cache_name, mark_of
from gridbot_client.protocol.manifest import LATEST
from gridbot_client.protocol.messages import FileRef, Manifest, WorkReply
from gridbot_server.storage.db import Connection

MB = 1 << 20
FIRST, SECOND, OTHER = (hashlib.sha256(text).hexdigest() for text in (b"1", b"2", b"3"))


def bot_with(
    conn: Connection, owner: int, sha256: str, policy: str, *, size: int = 8 * MB,
    name: str = "alice", source: str = "",
) -> int:  # fmt: skip
    manifest = Manifest(
        name, ("echo", "{i}"), {"i": "int"}, inputs=(FileRef("in", sha256, size),),
        sources={"in": (source,)} if source else {},
    )  # fmt: skip
    return make_bot(conn, owner, jobs=2, manifest=manifest.text(), policy=policy)


def tell(client: Caller, *names: str, want: int = 1) -> WorkReply:
    """Ask for work, and say that the cache holds these files."""
    marks = tuple(mark_of(name) for name in names)
    return client.take(client.send(replace(client.request(want), cached=marks)))


def bots(reply: WorkReply) -> list[int]:
    return [item.id.bot for item in reply.assignments]


def test_a_host_gets_first_what_it_holds_inputs_of(
    dispatch: Dispatch, conn: Connection, alice: int
) -> None:
    older = bot_with(conn, alice, FIRST, "Rank = Host.CachedMB")
    newer = bot_with(conn, alice, SECOND, "Rank = Host.CachedMB")
    dispatch.feed()
    assert bots(tell(caller(dispatch, alice), SECOND)) == [newer]
    assert bots(tell(caller(dispatch, alice), FIRST)) == [older]
    assert bots(caller(dispatch, alice).ask(1)) == [older]  # which tells nothing


def test_what_was_told_once_holds_until_something_else_is_told(
    dispatch: Dispatch, conn: Connection, alice: int, client: Caller
) -> None:
    bot_with(conn, alice, FIRST, "Rank = Host.CachedMB; Concurrency = 1")
    newer = bot_with(conn, alice, SECOND, "Rank = Host.CachedMB; Concurrency = 1")
    dispatch.feed()
    given = tell(client, SECOND)
    assert bots(given) == [newer]
    given = client.ask(1, tuple(success(item) for item in given.assignments))
    assert bots(given) == [newer]
    client.ask(0, tuple(success(item) for item in given.assignments))
    third = bot_with(conn, alice, SECOND, "JobRequirements = Host.CachedMB == 8")
    dispatch.feed()
    assert bots(tell(client, OTHER)) != [third]


def test_a_policy_may_ask_for_a_file_of_its_own_bot_alone(
    dispatch: Dispatch, conn: Connection, alice: int
) -> None:
    own = bot_with(conn, alice, FIRST, f'JobRequirements = Host.Has("{FIRST}")')
    bot_with(conn, alice, FIRST, f'JobRequirements = Host.Has("{OTHER}")')
    dispatch.feed()
    assert bots(tell(caller(dispatch, alice), OTHER, want=9)) == []
    assert bots(tell(caller(dispatch, alice), FIRST, OTHER, want=9)) == [own, own]


def test_what_an_owners_sources_gave_counts_for_that_owner_alone(
    dispatch: Dispatch, conn: Connection
) -> None:
    bob = make_owner(conn, "bob")
    policy = "JobRequirements = Host.CachedMB > 0"
    bot = bot_with(conn, bob, FIRST, policy, source="http://data.example/in", name="bob")
    dispatch.feed()
    client = caller(dispatch, bob)
    client.host["ManifestVersion"] = LATEST
    assert bots(tell(client, FIRST)) == []
    assert bots(tell(client, cache_name(FIRST, "alice"))) == []
    assert bots(tell(client, cache_name(FIRST, "bob"))) == [bot]


@pytest.mark.parametrize("said", [{"CachedMB": 1e6}, {"cachedmb": 1e6, "Cached": FIRST}])
def test_what_a_host_says_of_itself_in_its_ad_does_not_count(
    dispatch: Dispatch, conn: Connection, alice: int, client: Caller, said: dict[str, str | float]
) -> None:
    bot_with(conn, alice, FIRST, "JobRequirements = Host.CachedMB > 0")
    dispatch.feed()
    client.host.update(said)
    assert bots(client.ask()) == []


def test_a_host_that_claims_anything_is_answered_like_one_that_claims_nothing(
    dispatch: Dispatch, conn: Connection, alice: int
) -> None:
    bot_with(conn, alice, FIRST, "")
    dispatch.feed()
    told = [tell(caller(dispatch, alice), *names, want=0) for names in ((), (FIRST,), (OTHER,))]
    assert len({(item.acks, item.message, item.assignments, item.follow) for item in told}) == 1
    rows = conn.execute("SELECT cardinality(marks) FROM client_cache").fetchall()
    assert max(row[0] for row in rows) <= MAX_TOLD


def test_an_input_too_small_to_be_told_of_counts_for_nothing(
    dispatch: Dispatch, conn: Connection, alice: int, client: Caller
) -> None:
    bot = bot_with(conn, alice, FIRST, "JobRequirements = Host.CachedMB == 0", size=MB - 1)
    dispatch.feed()
    assert bots(tell(client, FIRST)) == [bot]
