"""Live output at the server: who may follow, and how what was read makes room for more."""

import base64
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from tests.factories import make_bot, make_lease, make_outcome
from tests.http.conftest import Person, Site
from tests.system.deployment import eventually

from gridbot_client.protocol.messages import MAX_PIECE_BYTES, ReplicaId
from gridbot_server.api.live import watched_output
from gridbot_server.cycles import live_output
from gridbot_server.dispatch.live_output import MOST_BYTES, SHOWN_BYTES, SQL
from gridbot_server.storage import db
from gridbot_server.storage.rows import encode


def _look(who: Person, bot: int, at: int | None = None, job: int | None = None) -> Any:
    place = [] if at is None else [{"seq": 0, "replica": 1, "stdout": at, "stderr": 0}]
    answer = who("POST", f"/api/v1/bots/{bot}/live", json={"positions": place, "job": job})
    assert answer.status_code == 200, answer.json
    return answer.json


def _stdout(found: Any) -> bytes:
    return base64.b64decode(found["replicas"][0]["stdout"])


def _window(site: Site) -> Any:
    query = "SELECT begins, content FROM live_output WHERE stream = 'stdout'"
    return site.conn.execute(query).fetchone()


def _followed_until(site: Site) -> Any:
    query = "SELECT followed_until FROM live_output WHERE stream = 'stdout'"
    return site.conn.execute(query).fetchone()


def _end_patience(site: Site) -> None:
    site.conn.execute("UPDATE live_output SET followed_until = now() - interval '1 s'")


def _has_sent(site: Site, content: bytes) -> None:
    site.conn.execute(
        "UPDATE live_output SET content = content || %s WHERE stream = 'stdout'", [content]
    )


def _running(site: Site, owner: Person) -> int:
    bot = make_bot(site.conn, owner.id, jobs=2)
    make_lease(site.conn, ReplicaId(bot, 0, 1), site.client_of(owner).id)
    return bot


def test_what_was_sent_is_read_from_any_place_in_it(site: Site, alice: Person) -> None:
    bot = _running(site, alice)
    assert _stdout(_look(alice, bot)) == b""
    _has_sent(site, b"0123456789")
    assert _stdout(_look(alice, bot)) == b"0123456789"
    assert _stdout(_look(alice, bot, 4)) == b"456789"
    assert _stdout(_look(alice, bot, 10)) == b""
    assert _window(site) == (0, b"0123456789")


def test_what_went_already_is_asked_for_again(site: Site, alice: Person) -> None:
    bot = _running(site, alice)
    _look(alice, bot, 50)
    _has_sent(site, b"0123456789")
    assert _stdout(_look(alice, bot, 3)) == b""
    assert _window(site) == (3, b"")


def test_who_is_ahead_of_another_follower_waits_and_goes_on_alone(
    site: Site, alice: Person
) -> None:
    bot = _running(site, alice)
    _look(alice, bot, MOST_BYTES)
    _has_sent(site, b"ahead")
    assert _stdout(_look(alice, bot)) == b""  # another one, from the beginning
    assert _window(site) == (0, b"")
    _has_sent(site, b"begun")
    assert _stdout(_look(alice, bot, MOST_BYTES)) == b""
    assert _stdout(_look(alice, bot)) == b"begun"
    _end_patience(site)
    assert _stdout(_look(alice, bot, MOST_BYTES)) == b""
    assert _window(site) == (MOST_BYTES, b"")


def test_who_waits_does_not_keep_a_window_that_nobody_reads(site: Site, alice: Person) -> None:
    bot = _running(site, alice)
    _look(alice, bot)
    before = _followed_until(site)
    _look(alice, bot, 50)
    assert _followed_until(site) == before
    _look(alice, bot)
    assert _followed_until(site) > before


def test_followers_who_are_not_far_apart_lose_nothing_of_each_other(
    site: Site, alice: Person
) -> None:
    bot = _running(site, alice)
    _look(alice, bot)
    places, piece = [0, 0], bytes(MAX_PIECE_BYTES)
    for turn in range(12):
        _has_sent(site, piece)
        for who in (0, 1) if turn % 2 else (0,):  # one asks half as often
            places[who] += len(_stdout(_look(alice, bot, places[who])))
    assert places == [12 * MAX_PIECE_BYTES] * 2


def test_what_was_read_makes_room_once_there_is_much(site: Site, alice: Person) -> None:
    bot = _running(site, alice)
    _look(alice, bot)
    _has_sent(site, bytes(MOST_BYTES))
    assert len(_stdout(_look(alice, bot, 1000))) == MOST_BYTES - 1000
    assert _window(site) == (1000, bytes(MOST_BYTES - 1000))


def test_a_job_is_over_with_its_outcome(site: Site, alice: Person) -> None:
    bot = _running(site, alice)
    make_outcome(site.conn, ReplicaId(bot, 1, 1), site.client_of(alice).id, {})
    assert not _look(alice, bot)["is_over"]
    assert not _look(alice, bot, job=0)["is_over"]
    assert _look(alice, bot, job=1) == {"is_over": True, "replicas": []}
    site.conn.execute("UPDATE bot SET state = 'cancelled' WHERE id = %s", [bot])
    assert _look(alice, bot)["is_over"]


def test_a_job_that_there_is_not_is_named(site: Site, alice: Person) -> None:
    bot = _running(site, alice)
    answer = alice("POST", f"/api/v1/bots/{bot}/live", json={"job": 2})
    assert (answer.status_code, answer.json["detail"]) == (404, f"BOT {bot} has no job 2")


def _pieces(site: Site, bot: int, at: int, content: bytes) -> dict[str, Any]:
    piece = {
        "bot": bot, "seq": 0, "replica": 1, "stream": "stdout", "at": at,
        "content": base64.b64encode(content).decode(), "client": _runner(site, bot),
    }  # fmt: skip
    return {"pieces": encode([piece]), "most": MOST_BYTES, "shown": SHOWN_BYTES}


def _runner(site: Site, bot: int) -> Any:
    found = site.conn.execute("SELECT client FROM lease WHERE bot = %s", [bot]).fetchone()
    assert found
    return found[0]


def _send(site: Site, bot: int, at: int, content: bytes) -> None:
    for name in ("append", "append_shown"):
        site.conn.execute(SQL[name], _pieces(site, bot, at, content))


def _wanted(site: Site, bot: int) -> list[int]:
    """From where on the client is to send."""
    values = {"clients": [_runner(site, bot)], "most": MOST_BYTES, "limit": 100}
    found = site.conn.execute(SQL["followed"], values).fetchall()
    return [row[-1] for row in found if row[-2] == "stdout"]


def _shown(site: Site, bot: int) -> tuple[int, bytes]:
    found = watched_output(site.conn, bot, 0)
    return next((item.begins, item.content) for item in found if item.stream == "stdout")


def test_a_page_and_a_command_far_apart_do_not_disturb_each_other(
    site: Site, alice: Person
) -> None:
    bot = _running(site, alice)
    _look(alice, bot, 5000)
    assert _shown(site, bot) == (0, b"")
    assert _wanted(site, bot) == [0, 5000]
    _send(site, bot, 5000, b"command")
    _send(site, bot, 0, b"page")
    assert _stdout(_look(alice, bot, 5000)) == b"command"
    assert _shown(site, bot) == (0, b"page")
    assert _wanted(site, bot) == [4, 5007]


def test_a_page_and_a_command_at_one_place_are_sent_it_once(site: Site, alice: Person) -> None:
    bot = _running(site, alice)
    _look(alice, bot)
    _shown(site, bot)
    assert _wanted(site, bot) == [0]
    _send(site, bot, 0, b"both")
    assert (_stdout(_look(alice, bot)), _shown(site, bot)) == (b"both", (0, b"both"))


def test_what_pages_show_is_in_order_and_its_oldest_bytes_go(site: Site, alice: Person) -> None:
    bot = _running(site, alice)
    _shown(site, bot)
    _send(site, bot, 0, b"first")
    _send(site, bot, 0, b"first")  # its reply was lost
    _send(site, bot, 9, b"later")  # what comes before has not come
    assert _shown(site, bot) == (0, b"first")
    _send(site, bot, 5, bytes(SHOWN_BYTES - 2) + b"ab")
    assert _shown(site, bot) == (5, bytes(SHOWN_BYTES - 2) + b"ab")
    _send(site, bot, 5 + SHOWN_BYTES, b"cd")
    assert _shown(site, bot) == (7, bytes(SHOWN_BYTES - 4) + b"abcd")


def test_many_who_look_at_a_job_are_one_follower(site: Site, alice: Person) -> None:
    bot = _running(site, alice)
    for _ in range(50):
        _shown(site, bot)
    assert _wanted(site, bot) == [0]


def test_nothing_is_asked_for_once_nobody_looks_and_it_goes_away(site: Site, alice: Person) -> None:
    bot = _running(site, alice)
    _shown(site, bot)
    assert site.conn.execute(SQL["followed_clients"]).fetchall() == [(_runner(site, bot),)]
    site.conn.execute("UPDATE shown_output SET shown_until = now() - interval '1 s'")
    assert _wanted(site, bot) == []
    assert site.conn.execute(SQL["followed_clients"]).fetchall() == []
    assert live_output.run_once(site.conn) == 2
    assert site.conn.execute("SELECT count(*) FROM shown_output").fetchone() == (0,)


def test_only_the_client_that_runs_a_replica_says_what_it_prints(site: Site, alice: Person) -> None:
    bot = _running(site, alice)
    _shown(site, bot)
    values = _pieces(site, bot, 0, b"forged")
    site.conn.execute("UPDATE lease SET client = %s", [site.client_of(alice).id])
    site.conn.execute(SQL["append_shown"], values)
    assert _shown(site, bot) == (0, b"")


def test_what_clients_send_is_locked_in_the_order_of_who_follows(
    site: Site, alice: Person, dsn: str
) -> None:
    bot = _running(site, alice)
    _look(alice, bot)
    # Its row comes to lie behind the other one.
    site.conn.execute("UPDATE live_output SET begins = 0 WHERE stream = 'stderr'")
    client = site.client_of(alice).id
    site.conn.execute("UPDATE lease SET client = %s WHERE bot = %s", [client, bot])
    pieces = [
        {"bot": bot, "seq": 0, "replica": 1, "stream": stream, "at": 0, "content": "YQ==",
         "client": client}
        for stream in ("stdout", "stderr")
    ]  # fmt: skip
    lock = "SELECT FROM live_output WHERE stream = %s FOR UPDATE NOWAIT"
    with db.connect(dsn) as follower, db.connect(dsn) as writer, ThreadPoolExecutor(1) as pool:
        for way in ("nestloop", "mergejoin", "indexscan", "bitmapscan"):
            writer.execute(f"SET enable_{way} = off")  # by which it would have an order by chance
        with follower.transaction():
            follower.execute(lock, ["stderr"])
            values = {"pieces": encode(pieces), "most": MOST_BYTES}
            sent = pool.submit(writer.execute, SQL["append"], values)
            eventually(lambda: _waits(site, writer.info.backend_pid))
            follower.execute(lock, ["stdout"])
        sent.result()
    assert _window(site) == (0, b"a")


def _waits(site: Site, pid: int) -> bool:
    query = "SELECT FROM pg_locks WHERE pid = %s AND NOT granted"
    return site.conn.execute(query, [pid]).fetchone() is not None


def test_what_is_written_to_is_forgotten_later(site: Site, alice: Person, dsn: str) -> None:
    bot = _running(site, alice)
    _look(alice, bot)
    _end_patience(site)
    with db.connect(dsn) as writer, db.connect(dsn) as cleaner:
        cleaner.execute("SET lock_timeout = '5s'")
        with writer.transaction():
            writer.execute("SELECT FROM live_output WHERE stream = 'stdout' FOR UPDATE")
            assert live_output.run_once(cleaner) == 1
        assert live_output.run_once(cleaner) == 1
