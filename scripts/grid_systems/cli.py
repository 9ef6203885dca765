"""The command line of `scripts/grid-systems`."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import click

from . import tree

SYSTEMS = {
    "condor": ["minicondor"],
    "gram": [
        *("globus-gatekeeper", "globus-gram-job-manager", "globus-gram-job-manager-scripts"),
        *("globus-gram-job-manager-fork", "globus-gram-job-manager-fork-setup-poll"),
        *("globus-gram-client-tools", "globus-proxy-utils", "openssl"),
    ],
}
CACHE = Path.home() / ".cache" / "gridbot" / "grid-systems"


@click.command(context_settings={"show_default": True})
@click.argument("system", type=click.Choice(sorted(SYSTEMS)))
@click.option(
    "--cache", type=click.Path(file_okay=False, path_type=Path), default=CACHE,
    help="Where the trees are kept for the next time, a few hundred megabytes each.",
)  # fmt: skip
@click.option("--mirror", default="", help="A mirror of Debian; mmdebstrap's own unless given.")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON document.")
def try_system(system: str, cache: Path, mirror: str, as_json: bool) -> None:
    """Start SYSTEM for real and make its submitter live through what happens there.

    Needs root, mmdebstrap and a kernel with namespaces. Nothing is installed on this machine: the
    system runs in a tree of its own, with own processes and an own network, and ends with it.
    Ends with 1 if any claim does not hold.
    """
    try:
        claims = tried(system, cache, mirror)
    except tree.TreeFailed as error:
        sys.exit(str(error))
    if as_json:
        print(json.dumps({"system": system, "claims": claims}, indent=1))
    sys.exit(0 if all(claim["is_good"] for claim in claims) else 1)


def tried(system: str, cache: Path = CACHE, mirror: str = "") -> list[dict[str, Any]]:
    """Tell a system's story in its tree, and return its claims: see `story.Story.claim`.

    Raises TreeFailed when the story ended in its midst.
    """
    root = tree.ready(cache / system, SYSTEMS[system], mirror)
    code, printed = tree.run(root, Path(__file__).resolve().parents[2], system)
    claims = [json.loads(line) for line in printed.splitlines() if line.startswith("{")]
    if bool(code) != (not all(claim["is_good"] for claim in claims)) or not claims:
        raise tree.TreeFailed(f"the story of {system} ended with code {code} in its midst")
    return claims
