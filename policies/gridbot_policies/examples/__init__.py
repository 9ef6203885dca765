"""Policies to copy from: the paper's, and two of everyday use."""

from __future__ import annotations

from importlib import resources


def names() -> list[str]:
    """Return the examples' names, sorted."""
    files = (file.name for file in resources.files(__name__).iterdir())
    return sorted(name.removesuffix(".ad") for name in files if name.endswith(".ad"))


def text(name: str) -> str:
    """Return an example as it is written; raise KeyError for a name that none has."""
    if name not in names():
        raise KeyError(name)
    return resources.files(__name__).joinpath(f"{name}.ad").read_text(encoding="utf-8")


def summary(name: str) -> str:
    """Return the first sentence of an example's comment."""
    comment = text(name).partition("\n//\n")[0].replace("\n//", "").removeprefix("// ")
    return comment.partition(". ")[0].rstrip(".") + "."
