"""What the answers of a client's machine came to, and what there is to do, as its server says."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import asdict, dataclass
from typing import Any, Self

from gridbot_client.net.transport import Transport, TransportError
from gridbot_client.storage import Folder

_READ_SECONDS = 8.0  # somebody waits for the answer
_MOST_REASONS, _MOST_CHARACTERS, _MOST_NUMBER = 20, 200, 2**53
# What the owner of a machine can do about what keeps BOTs from it.
_CURES = {
    "trust": "to run those of a person whom you know: gridbot client trust FINGERPRINT",
    "sandbox": "for what is missing: gridbot client doctor",
    "client": "update GridBot: gridbot client doctor says how",
    "memory": "if it has more to lend: gridbot client run --memory SIZE",
    "cpus": "if it has more to lend: gridbot client run --cpus N",
    "disk": "make room on the disk",
    "owner": "change the policy that you gave to gridbot client run",
    "concurrency": "nothing to do: it goes on when a job ends",
    "width": "nothing to do: more come when they are checked",
    "requirements": "nothing to do here: whoever submitted it may change its policy",
}
_FREE = "free"
# What is said of an idle client whose server does not tell more.
UNTOLD = (
    "idle; the server did not say why, so it may be busy, or away: to look at it: gridbot client"
    " doctor"
)


@dataclass(frozen=True, slots=True)
class ToldReason:
    """BOTs that one thing keeps from this machine."""

    reason: str
    text: str
    bots: int


@dataclass(frozen=True, slots=True)
class Prospects:
    """What the server has for this machine, and what the machine has earned."""

    bots_waiting: int
    reasons: tuple[ToldReason, ...]
    jobs_today: int
    credit: float
    release: str = ""  # GridBot's at the server; "" if it does not say

    @classmethod
    def read(cls, said: object) -> Self | None:
        """What a server says, within bounds; None if that is no such document."""
        if not isinstance(said, dict) or not isinstance(listed := said.get("reasons"), list):
            return None
        numbers = [said.get(name) for name in ("bots_waiting", "jobs_today", "credit")]
        reasons = [_reason(item) for item in listed[:_MOST_REASONS]]
        if not all(map(_is_number, numbers)) or None in reasons:
            return None
        waiting, today, credit = numbers
        found = tuple(item for item in reasons if item)
        release = said.get("release")
        return cls(
            int(waiting or 0), found, int(today or 0), float(credit or 0.0),
            release[:_MOST_CHARACTERS] if isinstance(release, str) else "",
        )  # fmt: skip

    def json(self) -> dict[str, Any]:
        """Document for --json."""
        return asdict(self)

    def idle(self) -> str:
        """Why there is nothing to do, and what to do about it, in one sentence."""
        if not self.bots_waiting:
            return "idle: the server has no unsent jobs"
        waiting = f"{_bots(self.bots_waiting)} {'waits' if self.bots_waiting == 1 else 'wait'}"
        if any(item.reason == _FREE for item in self.reasons):
            return f"idle: {waiting} to be sent, and the next request may bring some"
        if not self.reasons:
            return f"idle: {waiting} to be sent; whether they suit is known after the first request"
        return f"idle: {waiting}, and none suits: {'; '.join(map(_told, self.reasons))}"

    def earned(self) -> str:
        """What the machine has done."""
        jobs = "1 job" if self.jobs_today == 1 else f"{self.jobs_today} jobs"
        return f"done today: {jobs}; credit so far: {self.credit:.4g}"


def _is_number(value: object) -> bool:
    return type(value) in (int, float) and 0 <= value <= _MOST_NUMBER  # type: ignore[operator]


def _reason(said: object) -> ToldReason | None:
    if not isinstance(said, dict):
        return None
    reason, text, bots = said.get("reason"), said.get("text"), said.get("bots")
    if not (isinstance(reason, str) and isinstance(text, str) and _is_number(bots)):
        return None
    return ToldReason(reason[:_MOST_CHARACTERS], text[:_MOST_CHARACTERS], int(bots or 0))


def _told(item: ToldReason) -> str:
    cure = _CURES.get(item.reason)
    return f"{item.bots}: {item.text}" + (f" ({cure})" if cure else "")


def _bots(count: int) -> str:
    return "1 BOT" if count == 1 else f"{count} BOTs"


def prospects_of(folder: Folder) -> Prospects | None:
    """Ask the server what keeps work from this machine; None if it does not say."""
    return Prospects.read(_asked(folder, "prospects"))


def standing_of(folder: Folder) -> dict[str, Any] | None:
    """Ask the server for right, wrong and unchecked answers; None if it does not say."""
    said = _asked(folder, "standing")
    names = ("right", "wrong", "unchecked", "width")
    if isinstance(said, dict) and all(isinstance(said.get(name), int | float) for name in names):
        return {name: said[name] for name in names}
    return None


def _asked(folder: Folder, what: str) -> object:
    identity = folder.identity()
    if identity is None:
        return None
    with (
        suppress(TransportError, OSError),
        Transport(identity.url, identity.token, _READ_SECONDS) as transport,
    ):
        return transport.get_json(f"/api/v1/clients/self/{what}")
    return None


def told_of(standing: Mapping[str, Any] | None) -> list[str]:
    """Lines for people: the numbers, and what follows from them."""
    return list(_lines(standing)) if standing else []


def _lines(standing: Mapping[str, Any]) -> Iterator[str]:
    right, wrong, width = standing["right"], standing["wrong"], int(standing["width"])
    yield f"answers: {right} right, {wrong} wrong, {standing['unchecked']} not checked yet"
    if wrong:
        yield (
            "others disagree with some of this machine's answers: those are run again elsewhere,"
            " earn no credit, and it gets less work until it has made up for them"
        )
    yield f"it may hold {width} replicas of other people at a time, more as answers prove right"
