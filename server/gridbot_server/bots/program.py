"""What hosts prove themselves with: a program, as far as it can be told from a manifest."""

from __future__ import annotations

import hashlib
import posixpath

import orjson

from gridbot_client.protocol.messages import Manifest


def program_of(owner: int, manifest: Manifest) -> bytes:
    """Return a hash of an owner's command and of the files that it names.

    Data files are left out, and so are limits: the same program with other data is the same.  The
    owner is part of it, so that nobody can let hosts prove themselves with answers of his own.
    """
    named = {posixpath.normpath(word) for word in manifest.words}
    files = sorted(
        (ref.name, ref.sha256)
        for ref in manifest.inputs
        if ref.executable or posixpath.normpath(ref.name) in named
    )
    # Of several programs each gives the same answers, so that they are one.
    return hashlib.sha256(orjson.dumps([owner, manifest.words, files])).digest()
