"""How this GridBot was installed, and so how to install the rest of it.

The distribution is on no package index: its name alone would fetch somebody else's.
"""

from __future__ import annotations

import json
import shlex
from importlib.metadata import distribution
from urllib.parse import unquote, urlsplit


def install_command(extra: str) -> str:
    """Return what to type to add an extra, such as `server`, to this installation."""
    return command_for(extra, distribution("gridbot").read_text("direct_url.json"))


def command_for(extra: str, direct_url: str | None) -> str:
    """Return the command for an origin that pip recorded (PEP 610); None: it recorded none."""
    origin = json.loads(direct_url) if direct_url else {}
    url = urlsplit(origin.get("url", ""))
    if not url.scheme:
        return f"pip install '.[{extra}]' in a checkout of GridBot"
    if url.scheme == "file" and "vcs_info" not in origin:
        edits = "-e " if origin.get("dir_info", {}).get("editable") else ""
        return f"pip install {edits}{shlex.quote(f'{unquote(url.path)}[{extra}]')}"
    where = url.geturl()
    if version_control := origin.get("vcs_info"):
        where = f"{version_control['vcs']}+{where}@{version_control['commit_id']}"
    return f"pip install {shlex.quote(f'gridbot[{extra}] @ {where}')}"
