"""What the nemesis looks for."""

from __future__ import annotations


class InvariantBroken(Exception):
    """Something that must be true is not; `name` says which."""

    def __init__(self, name: str, example: object) -> None:
        super().__init__(f"{name}: {example}")
        self.name = name
