"""The platforms on which stock clients run BOTs: those whose shell can run a BOT's script.

A program that is made for BOINC's API needs no script.
"""

from __future__ import annotations

from collections.abc import Sequence

from gridbot_client.protocol.messages import Manifest
from gridbot_client.protocol.programs import HostProgram, platforms

# Those of ours that have a POSIX shell at /bin/sh.
SHELL_PLATFORMS = (
    "linux-x86_64",
    "linux-i686",
    "linux-aarch64",
    "linux-armv7l",
    "linux-riscv64",
    "linux-ppc64le",
    "darwin-x86_64",
    "darwin-arm64",
)


_WINDOWS = ("windows-amd64", "windows-x86", "windows-arm64")
# Makers of GPUs for which stock clients are given work.
_GPUS = ("", "nvidia", "amd", "intel")


def stock_platforms(manifest: Manifest) -> tuple[str, ...]:
    """The platforms on which stock clients can run a manifest, in our names; none: nowhere."""
    served = served_platforms(boinc_api=manifest.boinc_api)
    wanted = manifest.platforms or served
    if manifest.programs:
        wanted = platforms(stock_programs(manifest.programs, boinc_api=manifest.boinc_api))
    return tuple(name for name in wanted if name in served)


def served_platforms(*, boinc_api: bool) -> tuple[str, ...]:
    """All platforms on which stock clients run BOTs, of which the program is or is not for them."""
    return SHELL_PLATFORMS + _WINDOWS if boinc_api else SHELL_PLATFORMS


def stock_programs(programs: Sequence[HostProgram], *, boinc_api: bool) -> list[HostProgram]:
    """Those of a BOT's programs that stock clients can run, in the order of the table."""
    served = served_platforms(boinc_api=boinc_api)
    return [
        item for item in programs if item.selector.platform in served and item.selector.gpu in _GPUS
    ]


def stock_manifests(manifest: Manifest) -> tuple[Manifest, ...]:
    """What stock clients run: the manifest, or one for each program that they can run."""
    if not manifest.programs:
        return (manifest,)
    programs = stock_programs(manifest.programs, boinc_api=manifest.boinc_api)
    return tuple(map(manifest.running, programs))
