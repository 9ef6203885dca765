"""The platforms on which stock clients run BOTs: those whose shell can run a BOT's script."""

from __future__ import annotations

from gridbot_client.protocol.messages import Manifest

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


def stock_platforms(manifest: Manifest) -> tuple[str, ...]:
    """The platforms on which stock clients can run a manifest, in our names; none: nowhere."""
    wanted = manifest.platforms or SHELL_PLATFORMS
    return tuple(name for name in wanted if name in SHELL_PLATFORMS)
