"""One job, what its BOT says of how it is judged, and what may be decided."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, field
from datetime import datetime
from types import MappingProxyType
from typing import NamedTuple

from gridbot_server.cycles.quorum import Compared, Pair
from gridbot_server.matching.assurance import AssuranceTerms, Credence
from gridbot_server.storage.states import State
from gridbot_server.validators.spec import EXACT, Validator


class Ended(NamedTuple):
    """A replica that is no longer in progress."""

    replica: int
    round: int
    how: str
    reason: str
    digest: bytes | None
    valid: bool | None
    ended_at: datetime
    voter: int  # its host, or its owner where a quorum takes different owners
    credence: Credence = Credence()  # matters where the BOT has terms
    client: int = 0  # that had it
    host: int = 0


@dataclass(frozen=True, slots=True)
class Rules:
    """What a BOT says of how its jobs are judged."""

    quorum: int
    max_attempts: int
    validator: Validator = EXACT
    failover_after: int | None = None  # failures in a round; from then on, dedicated hosts only
    owner: int = 0
    cpus: int = 1  # cores of one replica
    # Of answers from strangers; None: a quorum of equal ones is sure.
    terms: AssuranceTerms | None = None
    among_strangers: bool = False  # its jobs run on machines whose owners nobody vouches for
    has_known_answers: bool = False
    max_replicas: int = 5  # in progress at once
    is_watched: bool = False  # it is held if its first replicas all fail alike
    first_round: int = 0  # of the manifest's version: with it, attempts begin anew
    max_failures: str | None = None  # failed jobs beyond which it is held: N or P%
    together: int = 1  # jobs of a gang
    created_at: float = 0.0  # s since 1970


@dataclass(slots=True)
class Job:
    """One job: replicas in progress, copies that wait, replicas that ended."""

    round: int = 0
    leased: list[int] = field(default_factory=list)
    queued: list[int] = field(default_factory=list)
    ended: list[Ended] = field(default_factory=list)
    canonical: int | None = None  # of its outcome
    has_outcome: bool = False
    is_cancelled: bool = False  # by its owner: that is its outcome
    coin: float = 1.0  # whether what a trusted host agreed on is checked once more
    crews: int = 0  # that work for its BOT; matters where it has several answers
    relied_on: tuple[int, ...] = ()  # replicas of its provisional outcome
    doubted: AbstractSet[int] = frozenset()  # lone voters who are not alone in working for its BOT
    compared: Mapping[Pair, Compared] = field(default_factory=dict)  # contents of its answers
    known: bytes | None = None  # digest of the answer that the BOT's owner knows
    silent: list[int] = field(default_factory=list)  # of those leased: their clients are silent

    @property
    def last_replica(self) -> int:
        """The highest number that a replica has."""
        return max([*self.leased, *self.queued, *(item.replica for item in self.ended)], default=0)

    def client_of(self, replica: int) -> int:
        """The client that had a replica which ended."""
        return next(item.client for item in self.ended if item.replica == replica)

    @property
    def coming(self) -> int:
        """How many answers may be expected: a silent client's is not."""
        return len(self.leased) - len(self.silent) + len(self.queued)

    @property
    def has_several_answers(self) -> bool:
        """Whether how many crews work for its BOT matters."""
        return len([item for item in self.ended if item.how == State.SUCCESS]) > 1


class Decision(NamedTuple):
    """Verdicts on replicas, and at most one of: an outcome, or further copies.

    Answers whose contents must be compared are decided once that is done.
    """

    valid: Mapping[int, bool] = MappingProxyType({})  # replica -> verdict
    canonical: int | None = None
    # Replicas of an outcome that is not sure, the canonical first.
    provisional: tuple[int, ...] = ()
    is_backed: bool = False  # a trusted host is among those on whom it relies
    failure: str | None = None  # why the job failed for good
    confidence: float = 1.0  # in the canonical answer
    copies: int = 0
    why: str = ""
    pool: str | None = None  # "dedicated": only such hosts may have the copies
    compare: Sequence[Pair] = ()
    wrong: tuple[int, ...] = ()  # replicas that were outvoted
    right: tuple[int, ...] = ()  # replicas with which others agree
    begins_anew: bool = False  # with its gang: nothing of its last replica counts

    @property
    def finishes(self) -> bool:
        """Whether the job has its outcome now."""
        return self.canonical is not None or self.failure is not None
