"""What made a file from what."""

from __future__ import annotations

from typing import Any

from gridbot.api.origin import FileOrigin


def made_from(*files: str) -> Any:
    return {"inputs": [{"sha256": file, "name": f"{file}.txt"} for file in files]}


def test_files_stand_below_what_was_made_of_them_in_their_order() -> None:
    origin = FileOrigin("a", {"a": made_from("b", "c"), "b": made_from("d"), "c": made_from("b")})
    assert [(depth, sha256) for depth, sha256, _ in origin.steps()] == [
        (0, "a"), (1, "b"), (2, "d"), (1, "c"), (2, "b"),
    ]  # fmt: skip


def test_a_chain_of_a_thousand_jobs_is_told_to_its_beginning() -> None:
    origin = FileOrigin("0", {str(n): made_from(str(n + 1)) for n in range(1000)})
    assert list(origin.steps())[-1] == (1000, "1000", "1000.txt")
