"""Starts a system in its tree and tells its story; what is claimed goes to stdout, line by line."""

from __future__ import annotations

import os
import pwd
import sys

from . import condor, gram
from .story import Story

USER = "pilot"


def become(user: str) -> None:
    """Go on as an ordinary user, for good."""
    entry = pwd.getpwnam(user)
    os.initgroups(user, entry.pw_gid)
    os.setgid(entry.pw_gid)
    os.setuid(entry.pw_uid)
    os.environ |= {"HOME": entry.pw_dir, "USER": user, "LOGNAME": user}
    os.umask(0o022)
    os.chdir(entry.pw_dir)


def main() -> int:
    """Tell the story of the system that the command line names."""
    system = {"condor": condor, "gram": gram}[sys.argv[1]]
    system.prepare(USER)
    become(USER)
    story = Story()
    system.tell(story)
    story.end()
    return 0 if story.is_good else 1


if __name__ == "__main__":
    sys.exit(main())
