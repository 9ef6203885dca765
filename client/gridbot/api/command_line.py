"""A job's command as a line for a shell, to run it by hand."""

from __future__ import annotations

import shlex
from collections.abc import Mapping

from gridbot_client.protocol.messages import Manifest
from gridbot_client.protocol.template import fill


def shell_line(manifest: Manifest, args: Mapping[str, str | int | float | bool]) -> str:
    """Variables, command and standard input of a job; of several programs it is the first.

    Raises TemplateError.
    """
    filled = fill(manifest.templates, manifest.placeholders, args)
    command, stdin = filled[: len(manifest.command)], filled[-1]
    values = filled[len(manifest.words) : -1]
    named = zip(manifest.environment, values, strict=True)
    line = [*(f"{name}={shlex.quote(value)}" for name, value in named), shlex.join(command)]
    return " ".join([*line, *(["<", shlex.quote(stdin)] if stdin else [])])
