"""A running server for tests; those that break it start their own."""

from collections.abc import Iterator

import pytest
from tests.system.deployment import Deployment, deployment

# A buffer smaller than most BOTs here, so that the feeder is part of what is tested.
BUFFER_SLOTS = 64


@pytest.fixture
def fresh() -> Iterator[Deployment]:
    """An installation whose server was not started yet."""
    with deployment() as made:
        yield made


@pytest.fixture(scope="module")
def shared() -> Iterator[Deployment]:
    """A server that the tests of one module share."""
    with deployment() as made:
        made.configure(buffer_slots=BUFFER_SLOTS, web_workers=2)
        made.start()
        yield made


@pytest.fixture
def running(shared: Deployment) -> Iterator[Deployment]:
    """The shared server, without clients and unfinished BOTs of earlier tests."""
    yield shared
    shared.kill_clients()
    with shared.session() as session:
        for bot in session.bots(state="running"):
            session.bot(bot.id).cancel()
