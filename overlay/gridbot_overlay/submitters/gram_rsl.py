"""Writes a pilot in RSL, the language in which GRAM is asked for jobs.  Pure."""

from __future__ import annotations

import base64
import gzip
import math
import re
import shlex
from collections.abc import Mapping

from gridbot_overlay.decide.model import PilotOrder
from gridbot_overlay.submitters import GridError, rendering

# A gatekeeper forgets a request that is not committed within so long.
COMMIT_SECONDS = 300
_LARGEST = 60_000  # a GRAM message has at most 64,000 bytes
_ATTRIBUTE = re.compile(r"\(\s*([A-Za-z_]+)\s*=")
_PROTOCOL = {"twophase", "savestate", "dryrun", "restart"}
# The script travels as a variable: arguments can be seen by everybody on a node, files would have
# to be fetched from us, and nodes need not reach us by anything but the server's address.
_START = 'eval "$(printf %s "$GRIDBOT_SCRIPT" | base64 -d | gzip -dc)"'


def pilot(order: PilotOrder, index: int, native_id: str, stderr: str) -> str:
    """Ask for one pilot, in two phases; the operator's own relations overrule ours."""
    protocol = {"save_state": "yes", "two_phase": str(COMMIT_SECONDS)}
    return _request(order, {**_relations(order, index, native_id, stderr), **protocol})


def test(order: PilotOrder) -> str:
    """Ask what would become of such a pilot, and for no job."""
    return _request(order, {**_relations(order, 0, "check", ""), "dry_run": "yes"})


def restart(contact: str) -> str:
    """Ask for a new job manager of a job that has lost its own."""
    return f"&(restart={quoted(contact)})"


def quoted(text: str) -> str:
    """Write a text as RSL does."""
    return '"' + text.replace('"', '""') + '"'


def _relations(order: PilotOrder, index: int, native_id: str, stderr: str) -> dict[str, str]:
    shape = order.shape
    script, owners = _packed(order, index, native_id), rendering.owners(order)
    return {
        "executable": quoted("/bin/sh"),
        "arguments": f"{quoted('-c')} {quoted(_START)}",
        "environment": f"({quoted('GRIDBOT_SCRIPT')} {quoted(script)})"
        f"({quoted('GRIDBOT_OWNERS')} {quoted(owners)})",
        "stdout": quoted("/dev/null"),
        "stderr": quoted(stderr or "/dev/null"),
        "job_type": "single",
        "count": str(shape.cpus),
        **({"host_count": "1"} if shape.cpus > 1 else {}),  # all of them on one machine
        "max_wall_time": str(math.ceil(shape.walltime_seconds / 60)),
        "max_memory": str(shape.memory_mb),
    }


def _request(order: PilotOrder, ours: Mapping[str, str]) -> str:
    theirs = {_bare(name) for line in order.directives for name in _ATTRIBUTE.findall(line)}
    if theirs & _PROTOCOL:
        raise GridError(
            "directives: two_phase, save_state, dry_run and restart are ours", is_lasting=True
        )
    kept = (f"({name}={value})" for name, value in ours.items() if _bare(name) not in theirs)
    text = f"&{''.join(kept)}{''.join(order.directives)}"
    if len(text) > _LARGEST:
        raise GridError(f"GRAM takes no request of {len(text)} bytes", is_lasting=True)
    return text


def _packed(order: PilotOrder, index: int, native_id: str) -> str:
    # What pilots run shall see neither the script, with its key, nor the delegated proxy.
    forget = "unset GRIDBOT_SCRIPT X509_USER_PROXY"
    script = rendering.script(order, str(index), shlex.quote(native_id), forget)
    return base64.b64encode(gzip.compress(script.encode(), mtime=0)).decode()


def _bare(name: str) -> str:
    """GRAM takes maxWallTime for max_wall_time."""
    return name.replace("_", "").lower()
