"""Replaces the placeholders of a manifest's command; no shell interprets the result."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from gridbot_client.protocol.fields import Scalar

# `{}` is short for `{i}`, the item of a range or a line.
_PIECE = re.compile(r"\{\{|\}\}|\{([A-Za-z_][A-Za-z0-9_.-]*)?\}|[{}]")
_DEFAULT_NAME = "i"
_NUMBERS = {
    "int": re.compile(r"[-+]?[0-9]+"),
    "real": re.compile(r"[-+]?([0-9]+\.?[0-9]*|\.[0-9]+)([eE][-+]?[0-9]+)?"),
}


class TemplateError(ValueError):
    """Command and arguments do not match; names the placeholder and the value."""


def placeholders_in(command: Sequence[str]) -> set[str]:
    """Names of all placeholders of a command.  Raises TemplateError on an unpaired brace."""
    found = set()
    for argument in command:
        for piece in _PIECE.finditer(argument):
            _check_brace(piece, argument)
            if piece[0][0] == "{" and piece[0] != "{{":
                found.add(piece[1] or _DEFAULT_NAME)
    return found


class Template(NamedTuple):
    """A text with placeholders, taken apart once to be filled for many jobs."""

    texts: Sequence[str]  # before, between and behind the placeholders
    names: Sequence[str]  # of the placeholders

    @classmethod
    def parse(cls, text: str) -> Template:
        """Take a text apart.  Raises TemplateError on an unpaired brace."""
        texts, names, at = [""], list[str](), 0
        for piece in _PIECE.finditer(text):
            _check_brace(piece, text)
            texts[-1] += text[at : piece.start()]
            at = piece.end()
            if piece[0] in ("{{", "}}"):
                texts[-1] += piece[0][0]
            else:
                names.append(piece[1] or _DEFAULT_NAME)
                texts.append("")
        texts[-1] += text[at:]
        return cls(texts, names)

    def fill(self, types: Mapping[str, str], args: Mapping[str, Scalar]) -> str:
        """The text for a job with these arguments.  Raises TemplateError."""
        filled = self.texts[0]
        for name, text in zip(self.names, self.texts[1:], strict=True):
            filled += _value(name, types, args) + text
        return filled


def fill(command: Sequence[str], types: Mapping[str, str], args: Mapping[str, Scalar]) -> list[str]:
    """Argv of one job; a placeholder may be any part of an argument.  Raises TemplateError."""
    return [Template.parse(argument).fill(types, args) for argument in command]


def _check_brace(piece: re.Match[str], argument: str) -> None:
    if piece[0] in ("{", "}"):
        raise TemplateError(
            f"argument {argument!r} has a single {piece[0]!r} at character {piece.start() + 1};"
            f" write {piece[0] * 2} for a literal brace, {{name}} for a placeholder"
        )


def _value(name: str, types: Mapping[str, str], args: Mapping[str, Scalar]) -> str:
    if name not in types:
        raise TemplateError(f"placeholder {{{name}}} has no type")
    if name not in args:
        raise TemplateError(f"placeholder {{{name}}} has no value in this job's arguments")
    value = args[name]
    text = str(value).lower() if isinstance(value, bool) else str(value)
    if not _fits(types[name], value, text):
        raise TemplateError(f"placeholder {{{name}}} is of type {types[name]}, got {value!r}")
    return text


def _fits(kind: str, value: Scalar, text: str) -> bool:
    """True if the value is of type `kind`; a number may be given as text, which is kept exactly."""
    if kind == "text":
        return "\x00" not in text
    return not isinstance(value, bool) and bool(_NUMBERS[kind].fullmatch(text))
