"""Where stock clients run BOTs: on platforms whose shell can run a BOT's script, and on Windows.

A program that is made for BOINC's API needs neither a script nor our program for Windows.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence

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


# Where a program of ours does what the script does.
WRAPPED_WINDOWS = "windows-amd64"
_WINDOWS = (WRAPPED_WINDOWS, "windows-x86", "windows-arm64")
# Makers of GPUs for which stock clients are given work.
_GPUS = ("", "nvidia", "amd", "intel")


def stock_platforms(manifest: Manifest) -> tuple[str, ...]:
    """The platforms on which stock clients can run a manifest, in our names; none: nowhere."""
    served = served_platforms(manifest)
    wanted = manifest.platforms or served
    if manifest.programs:
        wanted = platforms(stock_programs(manifest.programs, served))
    return tuple(name for name in wanted if name in served)


def served_platforms(manifest: Manifest) -> tuple[str, ...]:
    """All platforms on which stock clients run BOTs like this one."""
    if manifest.boinc_api:
        return SHELL_PLATFORMS + _WINDOWS
    return (*SHELL_PLATFORMS, WRAPPED_WINDOWS) if _may_be_wrapped(manifest) else SHELL_PLATFORMS


def is_wrapped_for_windows(manifest: Manifest) -> bool:
    """Whether what a client runs of this manifest, without a table, is our program for Windows."""
    return manifest.platforms == (WRAPPED_WINDOWS,) and not manifest.boinc_api


def _may_be_wrapped(manifest: Manifest) -> bool:
    """Whether a BOT says what runs on Windows: one command is not for Windows and others alike."""
    if manifest.programs:  # for their other rows they may ask what is not there on Windows
        return not (manifest.archives or manifest.checkpoint)
    return is_wrapped_for_windows(manifest)


def stock_programs(
    programs: Sequence[HostProgram], platforms: Collection[str]
) -> list[HostProgram]:
    """Those of a BOT's programs that stock clients on these platforms can run, in order."""
    return [
        item
        for item in programs
        if item.selector.platform in platforms and item.selector.gpu in _GPUS
    ]


def stock_manifests(manifest: Manifest) -> tuple[Manifest, ...]:
    """What stock clients run: the manifest, or one for each program that they can run."""
    if not manifest.programs:
        return (manifest,)
    programs = stock_programs(manifest.programs, stock_platforms(manifest))
    return tuple(map(manifest.running, programs))
