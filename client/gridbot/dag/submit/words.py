"""Arguments and environments, in the old syntax and in the new one."""

from __future__ import annotations

import re

from gridbot.dag.submit.errors import SubmitError


def arguments(text: str) -> list[str]:
    """Words of an `arguments` value.  Raises SubmitError."""
    text = text.strip()
    if text.startswith('"'):
        return _new_words(_unwrapped(text, "arguments"), "arguments")
    if re.search(r'(?<!\\)"', text):
        raise SubmitError(
            f"arguments: {text!r} has a double quote inside; write the whole value in quotes, or"
            ' \\" for a quote'
        )
    return text.replace('\\"', '"').split()


def environment(text: str) -> dict[str, str]:
    """Variables of an `environment` value.  Raises SubmitError."""
    text = text.strip()
    if text.startswith('"'):
        pieces = _new_words(_unwrapped(text, "environment"), "environment")
    else:
        pieces = [piece.strip() for piece in re.split(r"[;|\n]" if ";" in text else r"[;\n]", text)]
    found = {}
    for piece in filter(None, pieces):
        name, equals, value = piece.partition("=")
        if not equals or not name:
            raise SubmitError(f"environment: {piece!r} is not of the form NAME=value")
        found[name] = value
    return found


def _unwrapped(text: str, what: str) -> str:
    """The text in double quotes, in which two stand for one."""
    inner = text[1:-1].replace('""', "")
    if len(text) < 2 or not text.endswith('"') or '"' in inner:
        raise SubmitError(
            f"{what}: {text!r} begins with a double quote, so it must end with one, and quotes"
            ' inside are written ""'
        )
    return text[1:-1].replace('""', '"')


def _new_words(text: str, what: str) -> list[str]:
    """Words of the new syntax: single quotes group, and two in a group stand for one."""
    words, word, at = list[str](), None, 0
    while at < len(text):
        char = text[at]
        if char in " \t\r\n":
            if word is not None:
                words.append(word)
            word, at = None, at + 1
        elif char == "'":
            group, at = _group(text, at + 1, what)
            word = (word or "") + group
        else:
            word, at = (word or "") + char, at + 1
    return words if word is None else [*words, word]


def _group(text: str, at: int, what: str) -> tuple[str, int]:
    """What stands in single quotes from here on, and where it goes on behind them."""
    kept = ""
    while at < len(text):
        if text[at] != "'":
            kept, at = kept + text[at], at + 1
        elif text[at + 1 : at + 2] == "'":
            kept, at = f"{kept}'", at + 2
        else:
            return kept, at + 1
    raise SubmitError(f"{what}: a single quote is not closed in {text!r}")
