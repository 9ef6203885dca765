"""Certificates of an authority made for a test, as ARC's own tool makes them."""

from __future__ import annotations

import subprocess
from pathlib import Path

from tests.system.deployment import patience


def make_certificates(folder: Path) -> Path:
    """Make an authority, and certificates of the host localhost and of a user, u.

    Gives the folder of the authority; the others are in `folder`, as `client-u-cert.pem`.
    """
    authorities = folder / "authorities"
    authorities.mkdir()
    make = ("arcctl", "test-ca", "--ca-dir", str(authorities))
    for words in (
        ("init", "-f"),
        ("hostcert", "-n", "localhost", "-f"),
        ("usercert", "-n", "u", "-f"),
    ):
        subprocess.run(
            [*make, *words], cwd=folder, check=True, capture_output=True, timeout=patience(120.0)
        )
    return authorities
