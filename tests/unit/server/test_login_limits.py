"""Claims about the limits on passwords and new accounts."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from threading import Barrier, Thread

import pytest

from gridbot_client.boot import boot_id
from gridbot_server.overload.buckets import BucketFile
from gridbot_server.overload.login_limits import LoginLimits, TooManyAttempts

KEY = "0" * 32
WRONG = None  # what a look-up gives for a wrong password


class World:
    """Passwords that are tried at times that the test sets."""

    def __init__(self, buckets: BucketFile) -> None:
        self.limits, self.now, self.looked = LoginLimits.of(buckets), 0.0, 0

    def attempt(
        self,
        address: str = "192.0.2.1",
        email: str = "ann@example.com",
        found: str | None = WRONG,
        is_creation: bool = False,
    ) -> str | None:
        def look() -> str | None:
            self.looked += 1
            return found

        return self.limits.attempt(address, email, look, is_creation, clock=lambda: self.now)

    def is_refused(self, found: str | None = WRONG) -> bool:
        """Whether an attempt is refused without a look."""
        before = self.looked
        try:
            self.attempt(found=found)
        except TooManyAttempts:
            return self.looked == before
        return False

    def looks(self, attempt: Callable[[int], object], most: int = 1000) -> int:
        """How many attempts are looked at before one is not."""
        before = self.looked
        for number in range(most):
            try:
                attempt(number)
            except TooManyAttempts:
                break
        return self.looked - before


@contextmanager
def opened(folder: Path) -> Iterator[BucketFile]:
    """The buckets as one process has them."""
    buckets = BucketFile(folder / "counts")
    try:
        yield buckets
    finally:
        buckets.close()


@pytest.fixture
def world(tmp_path: Path) -> Iterator[World]:
    # A secret by which no two keys of these tests share a bucket.
    (tmp_path / "counts").write_bytes(boot_id().encode() + b"s" * 32)
    with opened(tmp_path) as buckets:
        yield World(buckets)


def test_an_accounts_password_is_tried_five_times_at_once_and_then_once_a_minute(
    world: World,
) -> None:
    assert world.looks(lambda number: world.attempt(address=f"192.0.2.{number}")) == 5
    assert world.is_refused(found=KEY)
    world.now = 60
    assert world.looks(lambda number: world.attempt(address=f"198.51.100.{number}")) == 1
    world.now = 3600
    assert world.looks(lambda number: world.attempt(address=f"203.0.113.{number}")) == 5


def test_an_address_in_other_letters_is_the_same_account(world: World) -> None:
    spellings = ["ann@example.com", "ANN@example.com", "Ann@Example.com"]
    assert world.looks(lambda number: world.attempt(email=spellings[number % 3])) == 5


def test_one_who_asks_for_many_accounts_is_stopped_and_others_are_not(world: World) -> None:
    assert world.looks(lambda number: world.attempt(email=f"u{number}@example.com")) == 30
    assert world.attempt(address="192.0.2.2", email="bob@example.com", found=KEY) == KEY
    world.now = 10
    assert world.looks(lambda number: world.attempt(email=f"v{number}@example.com")) == 1


def test_right_passwords_cost_nothing(world: World) -> None:
    assert world.looks(lambda _: world.attempt(found=KEY), most=200) == 200
    assert world.looks(lambda _: world.attempt()) == 5


def test_being_refused_costs_an_account_nothing(world: World) -> None:
    world.looks(lambda number: world.attempt(email=f"u{number}@example.com"))
    for _ in range(100):
        assert world.is_refused()
    assert world.looks(lambda number: world.attempt(address=f"198.51.100.{number}")) == 5


def test_one_address_makes_a_bounded_number_of_accounts(world: World) -> None:

    def create(number: int) -> object:
        return world.attempt(email=f"u{number}@example.com", found=KEY, is_creation=True)

    assert world.looks(create) == 50
    assert world.attempt(found=KEY) == KEY
    world.now = 60
    assert world.looks(create) == 1


def test_without_an_address_accounts_are_bound_and_nobody_is_locked_out(world: World) -> None:
    assert world.looks(lambda _: world.attempt(address="")) == 5
    tried = world.looks(lambda number: world.attempt("", f"u{number}@example.com"), most=200)
    assert tried == 200
    assert world.attempt(address="", email="bob@example.com", found=KEY) == KEY


def test_without_an_address_all_new_accounts_are_bound_together(world: World) -> None:
    def create(number: int) -> object:
        return world.attempt("", f"u{number}@example.com", found=KEY, is_creation=True)

    assert world.looks(create) == 50


def test_all_processes_together_keep_the_limits(tmp_path: Path) -> None:
    with opened(tmp_path) as one, opened(tmp_path) as two:
        first, second, found = World(one), World(two), 0
        for first.now in range(0, 600, 10):
            second.now = first.now
            found += first.looks(lambda _: first.attempt())
            found += second.looks(lambda _: second.attempt())
    assert found == 5 + 600 // 60 - 1


def test_a_process_that_is_started_anew_goes_on_counting(tmp_path: Path) -> None:
    with opened(tmp_path) as buckets:
        before = World(buckets)
        assert before.looks(lambda _: before.attempt()) == 5
    with opened(tmp_path) as buckets:
        after = World(buckets)
        assert after.is_refused()
        after.now = 60
        assert after.looks(lambda _: after.attempt()) == 1


@pytest.mark.parametrize("length", [0, 1, 36, 50, 5000])
def test_what_another_boot_or_half_a_start_left_is_forgotten(tmp_path: Path, length: int) -> None:
    (tmp_path / "counts").write_bytes(b"\x7f" * length)
    with opened(tmp_path) as buckets:
        world = World(buckets)
        assert world.looks(lambda _: world.attempt()) == 5


def test_the_buckets_are_nobody_elses_to_read(tmp_path: Path) -> None:
    with opened(tmp_path):
        assert (tmp_path / "counts").stat().st_mode & 0o777 == 0o600


def test_many_attempts_at_once_are_not_more_than_allowed(world: World) -> None:
    together = Barrier(32)
    found: list[object] = []

    def guess() -> None:
        together.wait()
        with suppress(TooManyAttempts):
            found.append(world.attempt())

    threads = [Thread(target=guess) for _ in range(32)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert found == [WRONG] * 5
