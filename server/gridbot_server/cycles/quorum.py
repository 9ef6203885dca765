"""Which replicas' outputs agree, and whether enough do."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol, TypeVar

from gridbot_server.validators import Validator


class Answer(Protocol):
    """A successful replica's answer."""

    @property
    def replica(self) -> int:
        """Its number within the job."""

    @property
    def digest(self) -> bytes | None:
        """Stands for its outputs."""


T = TypeVar("T", bound=Answer)


def groups(answers: Sequence[T], agree: Validator) -> list[list[T]]:
    """Sort answers into groups that agree with their first member; the largest group first."""
    found: list[list[T]] = []
    for answer in answers:
        for group in found:
            if agree(group[0].digest, answer.digest):
                group.append(answer)
                break
        else:
            found.append([answer])
    return sorted(found, key=len, reverse=True)
