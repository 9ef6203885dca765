"""What the nemesis looks for."""

from __future__ import annotations


class InvariantBroken(Exception):
    """Something that must be true is not; `name` says which."""

    def __init__(self, name: str, example: object) -> None:
        super().__init__(name, str(example))  # so that it can go from process to process
        self.name = name

    def __str__(self) -> str:
        return ": ".join(self.args)
