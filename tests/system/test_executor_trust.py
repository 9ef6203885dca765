"""What a stranger's machine returns is never unpickled: a live one that tries."""

from __future__ import annotations

import hashlib
import itertools
import pickle
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from tests.system.bare_client import HOST, BareClient
from tests.system.deployment import Deployment, deployment, eventually

from gridbot import Executor, GridbotError, Session
from gridbot.executor.bots import policy_of
from gridbot_client.protocol.messages import Assignment, Output, Report, Scalar

PATIENCE = 20.0
_NUMBERS = itertools.count(1)
OURS = {"PythonVersion": policy_of("json", (), "").split('"')[1]}


@pytest.fixture(scope="module")
def shared() -> Iterator[Deployment]:
    """A server that signs what is submitted, for strangers' clients, too."""
    with deployment() as made:
        made.start("--sign-on-submit")
        yield made


@pytest.fixture
def session(running: Deployment) -> Iterator[Session]:
    with running.session() as made:
        yield made


@pytest.fixture
def own(running: Deployment) -> BareClient:
    return running.bare_client("own")


@pytest.fixture
def stranger(running: Deployment) -> BareClient:
    """Another person's client."""
    name = f"mallory{next(_NUMBERS)}"
    return BareClient.join(running.url, running.add_user(name), name)


@contextmanager
def executor_of(session: Session, **options: Any) -> Iterator[Executor]:
    """An executor that nobody waits for when a test fails."""
    executor = Executor(session, **options)
    try:
        yield executor
    finally:
        executor.shutdown(wait=False, cancel_futures=True)


class Bomb:
    """Makes a file wherever it is unpickled."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def __reduce__(self) -> tuple[Callable[[str], int], tuple[str]]:
        return _explode, (str(self.path),)


def _explode(path: str) -> int:
    return Path(path).write_text("unpickled")


def given(client: BareClient, **host: Scalar) -> tuple[Assignment, ...]:
    """What the server gives to a host that says this of itself."""
    request = replace(client.request(), host={**HOST, **OURS, **host})
    return client.send(request).assignments


def returned(client: BareClient, job: Assignment, content: bytes) -> None:
    """Report a success with these bytes."""
    output = Output("returned", hashlib.sha256(content).hexdigest(), len(content), content)
    client.ask(0, (Report(job.id, "success", exit_code=0, outputs=(output,)),))


@pytest.mark.parametrize(
    "lies",
    [
        {},
        {"Owner": "operator", "IsPilot": True},
        {"HostOwner": "operator", "Dedicated": True, "Requirements": "true"},
    ],
    ids=["honest", "owner and pilot", "dedicated"],
)
def test_a_stranger_gets_no_call_whose_result_would_be_unpickled(
    session: Session, own: BareClient, stranger: BareClient, lies: dict[str, Scalar]
) -> None:
    with executor_of(session) as executor:
        future = executor.submit(pow, 2, 3)
        assert given(stranger, **lies) == ()
        (job,) = eventually(lambda: given(own))
        assert given(stranger, **lies) == ()
        returned(own, job, pickle.dumps([(0.1, True, pickle.dumps(8))]))
        assert future.result(PATIENCE) == 8


def test_a_pickle_in_the_place_of_json_is_refused_unread(
    session: Session, stranger: BareClient, tmp_path: Path
) -> None:
    bomb = pickle.dumps([(0.1, True, pickle.dumps(Bomb(tmp_path / "ran")))])
    bare = pickle.dumps(Bomb(tmp_path / "ran"))
    with executor_of(session, results="json") as executor:
        for content in (
            bomb,
            bare,
            b'[[0.1, true, {"array": "gASVAAAA"}]]',
            b'[[NaN, true, {"value": 8}]]',
        ):
            future = executor.submit(pow, 2, 3)
            (job,) = eventually(lambda: given(stranger))
            returned(stranger, job, content)
            with pytest.raises(GridbotError, match="returned"):
                future.result(PATIENCE)
        future = executor.submit(pow, 2, 3)
        (job,) = eventually(lambda: given(stranger))
        returned(stranger, job, b'[[0.1, true, {"value": 8}]]')
        assert future.result(PATIENCE) == 8
    assert not (tmp_path / "ran").exists()
    assert pickle.loads(bare) == len("unpickled") and (tmp_path / "ran").exists()  # it does work
