"""Starts a batch system and keeps it until stdin ends; its tree's own Python runs this."""

from __future__ import annotations

import sys

from scripts.grid_systems import condor, gram
from scripts.grid_systems.inside import USER, become


def main() -> None:
    """Start the system that the command line names, and say so."""
    system = {"condor": condor, "gram": gram}[sys.argv[1]]
    system.prepare(USER)
    become(USER)
    system.start()
    print("ready", flush=True)
    sys.stdin.read()


if __name__ == "__main__":
    main()
