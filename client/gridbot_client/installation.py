"""How this GridBot was installed: its release, how to install the rest of it, how to update it.

The distribution is on no package index: its name alone would fetch somebody else's.
"""

from __future__ import annotations

import json
import re
import shlex
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, distribution, version
from typing import Any, Self
from urllib.parse import unquote, urlsplit

_ENVIRONMENT = "python3 -m venv ~/gridbot-venv && . ~/gridbot-venv/bin/activate"
_RELEASE = re.compile(r"\d{1,6}(\.\d{1,6}){0,3}", re.ASCII)


def release() -> str:
    """Release of this installation, as in `0.1.0`; "0" in a checkout that is not installed."""
    try:
        return version("gridbot")
    except PackageNotFoundError:
        return "0"


def is_newer(told: str, own: str) -> bool:
    """Whether a release that somebody tells follows `own`; False if either is no such number."""
    if not (_RELEASE.fullmatch(told) and _RELEASE.fullmatch(own)):
        return False
    first, second = ([int(part) for part in text.split(".")] for text in (told, own))
    width = max(len(first), len(second))
    return first + [0] * (width - len(first)) > second + [0] * (width - len(second))


def install_command(extra: str) -> str:
    """Return what to type to add an extra, such as `server`, to this installation."""
    return Origin.recorded().install(extra)


def elsewhere_command() -> str:
    """Return the line to type on another machine to install the same there."""
    return f"{_ENVIRONMENT} && {Origin.recorded().elsewhere()}"


def copied_from() -> str:
    """Return the folder or archive on this machine that another one needs a copy of, or ""."""
    return Origin.recorded().path


def update_command() -> str:
    """Return what to type to update this installation from where it came from."""
    return Origin.recorded().update()


def update_advice(told: str) -> str:
    """What to do about the release that a server tells; "" unless it is newer than this one.

    Nothing of the server's goes into the command, so that it cannot name a program of its own.
    """
    if not is_newer(told, release()):
        return ""
    return (
        f"the server runs GridBot {told}; to update, when it suits you: {update_command()},"
        " then gridbot client stop and gridbot client start"
    )


@dataclass(frozen=True, slots=True)
class Origin:
    """Where pip took the distribution from, as it recorded (PEP 610)."""

    url: str = ""  # "": it recorded none
    vcs: str = ""  # such as `git`; "" if the URL is of a folder or an archive
    commit: str = ""
    revision: str = ""  # branch or tag that was asked for
    is_folder: bool = False
    is_editable: bool = False

    @classmethod
    def recorded(cls) -> Self:
        """Origin of this installation."""
        text = distribution("gridbot").read_text("direct_url.json")
        return cls.read(json.loads(text) if text else {})

    @classmethod
    def read(cls, record: dict[str, Any]) -> Self:
        """Origin by the contents of `direct_url.json`."""
        folder, control = record.get("dir_info"), record.get("vcs_info", {})
        return cls(
            record.get("url", ""), control.get("vcs", ""), control.get("commit_id", ""),
            control.get("requested_revision", ""), folder is not None,
            bool((folder or {}).get("editable")),
        )  # fmt: skip

    @property
    def path(self) -> str:
        """Folder or archive on this machine; "" if it is elsewhere."""
        parts = urlsplit(self.url)
        return unquote(parts.path) if parts.scheme == "file" and not self.vcs else ""

    def install(self, extra: str) -> str:
        """Command that installs the same with an extra."""
        if not self.url:
            return f"pip install '.[{extra}]' in a checkout of GridBot"
        if self.path:
            edits = "-e " if self.is_editable else ""
            return f"pip install {edits}{shlex.quote(f'{self.path}[{extra}]')}"
        return f"pip install {shlex.quote(f'gridbot[{extra}] @ {self._source(self.commit)}')}"

    def elsewhere(self) -> str:
        """Command that installs the same on another machine, which must see a local path."""
        if not self.url:
            return "pip install . in a checkout of GridBot"
        if self.path:
            return f"pip install {shlex.quote(self.path)}"
        return f"pip install {shlex.quote(f'gridbot @ {self._source(self.commit)}')}"

    def update(self) -> str:
        """Command that installs what stands there now."""
        if not self.url:
            return "git pull && pip install . in a checkout of GridBot"
        if not self.path:
            source = self._source(self.revision)
            return f"pip install --upgrade {shlex.quote(f'gridbot @ {source}')}"
        path = shlex.quote(self.path)
        if not self.is_folder:
            return f"pip install --upgrade with the new release in the place of {path}"
        pull = f"git -C {path} pull"
        return pull if self.is_editable else f"{pull} && pip install --upgrade {path}"

    def _source(self, revision: str) -> str:
        if not self.vcs:
            return self.url
        return f"{self.vcs}+{self.url}" + (f"@{revision}" if revision else "")
