"""Writes elements as BOINC programs read them: in scheduler replies and statistics files.

Each element has a line of its own, without attributes; a value is one line of escaped text.
"""

from __future__ import annotations


def escape(value: object) -> str:
    """A value as text that BOINC reads back: on one line, without tags or control characters."""
    text = str(value)
    if not text.isprintable():
        text = "".join(character if character.isprintable() else " " for character in text)
    return text.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")


def element(name: str, value: object) -> str:
    """One element on a line of its own."""
    return f"<{name}>{escape(value)}</{name}>\n"


def given(name: str, value: object) -> str:
    """An element, unless its value is empty."""
    return element(name, value) if value else ""


def lines(name: str, text: str) -> str:
    """An element of several lines, a key or a signature; nothing if it is empty."""
    return f"<{name}>\n{text.strip()}\n</{name}>\n" if text else ""


def flag(name: str, is_set: bool = True) -> str:
    """An element that is there or not."""
    return f"<{name}/>\n" if is_set else ""


def block(name: str, *inner: str) -> str:
    """An element around others."""
    return f"<{name}>\n{''.join(inner)}</{name}>\n"
