from __future__ import annotations

from collections.abc import Iterator

import pytest
from tests.system.deployment import NO_COPIES, Deployment, deployment, eventually


@pytest.fixture
def machines() -> Iterator[tuple[Deployment, Deployment]]:
    """Two servers on the database and the files of the first, each with a buffer for few jobs."""
    with deployment() as first:
        first.configure(buffer_slots=32)
        first.start()
        with deployment(first.settings.dsn_or_embedded) as second:
            second.configure(buffer_slots=32)
            second.settings.files.rmdir()
            second.settings.files.symlink_to(first.settings.files)
            second.start()
            yield first, second


def machine(server: Deployment) -> str:
    return (server.data / "machine").read_text()


def sent(server: Deployment, bot: int) -> dict[str, int]:
    """First copies that each machine handed out."""
    query = (
        "SELECT split_part(writer, '-', 1), sum(value)::int FROM bot_stat"
        " WHERE bot = %s AND name = 'sent_first' GROUP BY 1"
    )
    return dict(server.rows(query, bot))


def failures(server: Deployment, bot: int) -> list[object]:
    """Copies of a BOT that did not succeed, and why."""
    query = "SELECT seq, replica, how, reason FROM ended WHERE bot = %s AND how <> 'success'"
    return server.rows(query, bot)


def test_two_machines_on_one_database_share_a_bot(
    machines: tuple[Deployment, Deployment],
) -> None:
    first, second = machines
    first.client("here", "--cpus", "1")
    second.client("there", "--cpus", "1")
    bot = first.submit("--range", "0:300", "--", "echo", "{}", policy=NO_COPIES)
    second.wait(bot)
    assert failures(first, bot) == []
    assert first.outcomes(bot) == dict.fromkeys(range(300), 1)
    counts = sent(first, bot)
    assert counts.keys() == {machine(server)[:8] for server in machines}
    assert sum(counts.values()) == 300


def test_a_machine_finishes_what_another_left_behind(
    machines: tuple[Deployment, Deployment],
) -> None:
    first, second = machines
    gate = first.gate()
    first.client("here", "--cpus", "1")
    bot = first.submit("--range", "0:100", "--", *gate.command(), policy=NO_COPIES)
    owners = "SELECT DISTINCT machine FROM feed_range WHERE bot = %s"
    both = {(machine(server),) for server in machines}
    eventually(lambda: set(first.rows(owners, bot)) == both)
    second.crash()
    gate.open()
    first.wait(bot)
    assert first.outcomes(bot) == dict.fromkeys(range(100), 1)
    assert sent(first, bot) == {machine(first)[:8]: 100}
