"""Claims about how often passwords may be tried."""

from __future__ import annotations

from collections.abc import Callable
from threading import Barrier, Thread

import pytest

from gridbot_server.boinc.guesses import Guesses, Throttle, source
from gridbot_server.boinc.pages import AccountError

KEY = "0" * 32


class World:
    """Passwords that are tried at times that the test sets."""

    def __init__(self, processes: int = 1) -> None:
        self.guesses, self.now, self.looked = Guesses.of(b"secret", processes), 0.0, 0

    def attempt(
        self,
        address: str = "192.0.2.1",
        email: str = "ann@example.com",
        found: str | AccountError = AccountError.NOT_FOUND,
        is_creation: bool = False,
    ) -> str | AccountError:
        def look() -> str | AccountError:
            self.looked += 1
            return found

        return self.guesses.attempt(address, email, look, is_creation, clock=lambda: self.now)

    def looks(self, attempt: Callable[[int], object], most: int = 1000) -> int:
        """How many attempts are looked at before one is not."""
        before = self.looked
        for number in range(most):
            if attempt(number) is AccountError.PROJECT_DOWN:
                break
        return self.looked - before


def test_an_accounts_password_is_tried_five_times_at_once_and_then_once_a_minute() -> None:
    world = World()
    assert world.looks(lambda number: world.attempt(address=f"192.0.2.{number}")) == 5
    assert world.attempt(found=KEY) is AccountError.PROJECT_DOWN
    world.now = 60
    assert world.looks(lambda number: world.attempt(address=f"198.51.100.{number}")) == 1
    world.now = 3600
    assert world.looks(lambda number: world.attempt(address=f"203.0.113.{number}")) == 5


def test_an_address_in_other_letters_is_the_same_account() -> None:
    world = World()
    spellings = ["ann@example.com", "ANN@example.com", "Ann@Example.com"]
    assert world.looks(lambda number: world.attempt(email=spellings[number % 3])) == 5


def test_one_who_asks_for_many_accounts_is_stopped_and_others_are_not() -> None:
    world = World()
    assert world.looks(lambda number: world.attempt(email=f"u{number}@example.com")) == 30
    assert world.attempt(address="192.0.2.2", email="bob@example.com", found=KEY) == KEY
    world.now = 10
    assert world.looks(lambda number: world.attempt(email=f"v{number}@example.com")) == 1


def test_right_passwords_cost_nothing() -> None:
    world = World()
    assert world.looks(lambda _: world.attempt(found=KEY), most=200) == 200
    assert world.looks(lambda _: world.attempt()) == 5


def test_being_refused_costs_an_account_nothing() -> None:
    world = World()
    world.looks(lambda number: world.attempt(email=f"u{number}@example.com"))
    for _ in range(100):
        assert world.attempt() is AccountError.PROJECT_DOWN
    assert world.looks(lambda number: world.attempt(address=f"198.51.100.{number}")) == 5


def test_one_address_makes_a_bounded_number_of_accounts() -> None:
    world = World()

    def create(number: int) -> object:
        return world.attempt(email=f"u{number}@example.com", found=KEY, is_creation=True)

    assert world.looks(create) == 50
    assert world.attempt(found=KEY) == KEY
    world.now = 60
    assert world.looks(create) == 1


def test_all_processes_together_keep_to_the_rate() -> None:
    def looks_in_ten_minutes(world: World) -> int:
        found = 0
        for world.now in range(0, 600, 10):
            found += world.looks(lambda _: world.attempt())
        return found

    both = [looks_in_ten_minutes(World(processes=2)) for _ in range(2)]
    assert sum(both) == 2 * 5 + 600 // 60 - 2


def test_memory_does_not_grow_with_the_number_of_keys_and_none_is_forgotten() -> None:
    throttle = Throttle(b"secret", 1, 1e9)
    assert throttle.take("ann", 0.0)
    passed = sum(throttle.take(f"key {number}", 0.0) for number in range(100_000))
    assert passed < 2**15
    assert not throttle.take("ann", 0.0)


def test_the_secret_decides_which_keys_share_a_line() -> None:
    def sharing(secret: bytes) -> list[bool]:
        throttle = Throttle(secret, 1, 1e9)
        return [throttle.take(f"key {number}", 0.0) for number in range(5000)]

    assert sharing(b"one") != sharing(b"two")


def test_many_attempts_at_once_are_not_more_than_allowed() -> None:
    world, together = World(), Barrier(32)
    found: list[object] = []

    def guess() -> None:
        together.wait()
        found.append(world.attempt())

    threads = [Thread(target=guess) for _ in range(32)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert found.count(AccountError.NOT_FOUND) == 5


@pytest.mark.parametrize(
    ("peer", "forwarded", "is_behind_proxy", "found"),
    [
        ("192.0.2.1", "", False, "192.0.2.1"),
        ("192.0.2.1", "203.0.113.9", False, "192.0.2.1"),
        ("127.0.0.1", "203.0.113.9", True, "203.0.113.9"),
        ("127.0.0.1", "made, up, 203.0.113.9", True, "203.0.113.9"),
        ("127.0.0.1", "", True, "127.0.0.1"),
        ("127.0.0.1", "unknown", True, "127.0.0.1"),
        ("2001:db8:1:2:3:4:5:6", "", False, "2001:db8:1:2::/64"),
        ("127.0.0.1", "2001:db8:1:2::9", True, "2001:db8:1:2::/64"),
        ("", "", False, ""),
    ],
)
def test_whoever_asks_is_known_by_what_he_cannot_make_up(
    peer: str, forwarded: str, is_behind_proxy: bool, found: str
) -> None:
    assert source(peer, forwarded, is_behind_proxy) == found
