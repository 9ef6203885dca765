"""A running server for tests; those that break it start their own."""

from collections.abc import Iterator

import pytest
from tests.system.deployment import Deployment, deployment


@pytest.fixture
def fresh() -> Iterator[Deployment]:
    """An installation whose server was not started yet."""
    with deployment() as made:
        yield made


@pytest.fixture(scope="module")
def running() -> Iterator[Deployment]:
    """A server that the tests of one module share."""
    with deployment() as made:
        made.start()
        yield made
