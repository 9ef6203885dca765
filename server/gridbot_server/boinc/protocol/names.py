"""The names under which BOINC's clients know our replicas, files, platforms and server.

All names are unique for ever and can be read back.  Where knowing a name is a right (to report a
replica, to upload an output, to download a file) it ends in a tag that only this server can make.
"""

from __future__ import annotations

import hashlib
import hmac
import re
from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import NamedTuple

from gridbot_client.protocol.messages import MAX_BIGINT, MAX_OUTPUTS, ReplicaId
from gridbot_server.boinc.protocol.tags import BoincError

# In lower case only: Windows and macOS hold names in another case to be the same file.
_TAG_BYTES = 12
_CERTIFICATE_BYTES = 32
_REPLICA = re.compile(r"gb_(\d{1,19})_(\d{1,19})_(\d{1,10})_(\d{1,19})_([0-9a-f]{24})", re.ASCII)
_FILE = re.compile(r"gb_([0-9a-f]{64})_([0-9a-f]{24})")
_ADDRESS = re.compile(r"(https?://)([^\s/.][^\s/]*\.[^\s/]+(?:/[^\s]*)?)")


class Lease(NamedTuple):
    """A replica and the client that it was sent to."""

    replica: ReplicaId
    client: int


class OutputName(NamedTuple):
    """One output of a leased replica, by its place among the files to upload."""

    lease: Lease
    number: int


@dataclass(frozen=True, slots=True)
class Names:
    """Makes and reads names; `secret` is the server's, and never changes."""

    secret: bytes

    def replica(self, lease: Lease) -> str:
        """BOINC's result name."""
        (bot, seq, replica), client = lease
        stem = f"gb_{bot}_{seq}_{replica}_{client}"
        return f"{stem}_{self._tag(stem)}"

    def read_replica(self, name: str) -> Lease | None:
        """The lease of a result name; None for a name that this server did not make."""
        found = _REPLICA.fullmatch(name)
        if found is None:
            return None
        bot, seq, replica, client = map(int, found.group(1, 2, 3, 4))
        is_ours = (
            max(bot, seq, client) <= MAX_BIGINT
            and replica < 2**31
            and self._is_tag(name[: found.start(5) - 1], found[5])
        )
        return Lease(ReplicaId(bot, seq, replica), client) if is_ours else None

    def output(self, output: OutputName) -> str:
        """The name of an output file, on the client and at its upload."""
        return output_name(self.replica(output.lease), output.number)

    def read_output(self, name: str) -> OutputName | None:
        """The output of a file name; None for a name that this server did not make."""
        replica = name.rpartition("_")[0]
        lease, number = self.read_replica(replica), output_number(replica, name)
        return None if lease is None or number is None else OutputName(lease, number)

    def file(self, sha256: str) -> str:
        """The name of a file to download: one content, one name."""
        stem = f"gb_{sha256}"
        return f"{stem}_{self._tag(stem)}"

    def read_file(self, name: str) -> str | None:
        """The SHA-256 of a file to download; None for a name that this server did not make."""
        found = _FILE.fullmatch(name)
        if found is None or not self._is_tag(f"gb_{found[1]}", found[2]):
            return None
        return found[1]

    def person(self, owner: int) -> str:
        """64 hex digits that stand for an owner towards clients, and tell nothing of him."""
        return self._mac(f"account {owner}", 32)

    def certificate(self, name: str, max_nbytes: int) -> str:
        """The `xml_signature` with which a client may upload one file of at most that size.

        The client only echoes it, so it is a MAC in the form of a signature: an RSA key would do
        no more, and take thirty times as long for every replica that is sent.
        """
        return self._mac(f"upload {name} {max_nbytes}", _CERTIFICATE_BYTES) + "\n."

    def is_certificate(self, name: str, max_nbytes: int, text: str) -> bool:
        """Whether this server gave that certificate; white space at its ends does not matter."""
        given = text.strip().encode(errors="replace")
        return hmac.compare_digest(self.certificate(name, max_nbytes).encode(), given)

    def _tag(self, stem: str) -> str:
        return self._mac(stem, _TAG_BYTES)

    def _mac(self, text: str, size: int) -> str:
        """A keyed BLAKE2: a request needs several for each of its replicas."""
        return hashlib.blake2b(text.encode(), key=self.secret, digest_size=size).hexdigest()

    def _is_tag(self, stem: str, tag: str) -> bool:
        return hmac.compare_digest(self._tag(stem), tag)


def output_name(replica: str, number: int = 0) -> str:
    """The name of an output of the replica of this name."""
    return f"{replica}_{number}"


def output_number(replica: str, name: str) -> int | None:
    """Which output of a replica has this name; None when none of its has."""
    stem, _, digits = name.rpartition("_")
    number = int(digits) if stem == replica and digits.isdecimal() and len(digits) <= 3 else -1
    return number if 0 <= number < MAX_OUTPUTS and str(number) == digits else None


# BOINC's words for system and architecture, and ours.
PLATFORMS: Mapping[str, str] = MappingProxyType(
    {
        "x86_64-pc-linux-gnu": "linux-x86_64",
        "i686-pc-linux-gnu": "linux-i686",
        "aarch64-unknown-linux-gnu": "linux-aarch64",
        "arm-unknown-linux-gnueabihf": "linux-armv7l",
        "riscv64-unknown-linux-gnu": "linux-riscv64",
        "powerpc64le-unknown-linux-gnu": "linux-ppc64le",
        "windows_x86_64": "windows-amd64",
        "windows_intelx86": "windows-x86",
        "windows_arm64": "windows-arm64",
        "x86_64-apple-darwin": "darwin-x86_64",
        "arm64-apple-darwin": "darwin-arm64",
        "aarch64-android-linux-gnu": "android-aarch64",
        "arm-android-linux-gnu": "android-armv7l",
        "x86_64-android-linux-gnu": "android-x86_64",
    }
)
_BOINC_PLATFORMS = {ours: boinc for boinc, ours in PLATFORMS.items()}


def platform(boinc: str) -> str:
    """Our word for a platform; BOINC's own for one that has none."""
    return PLATFORMS.get(boinc, boinc)


def boinc_platform(ours: str) -> str:
    """BOINC's word for one of our platforms; ours for one that has none."""
    return _BOINC_PLATFORMS.get(ours, ours)


def canonical_url(url: str) -> str:
    """A master URL as clients know it; BoincError for one that they refuse.

    They want a dot in the host's name, so that `localhost` does not do where 127.0.0.1 does.
    """
    found = _ADDRESS.fullmatch(url)
    if found is None:
        raise BoincError(
            f"{url!r} cannot be attached by BOINC clients: it must begin with http:// or https://,"
            " and its host must contain a dot (write 127.0.0.1 for localhost)"
        )
    return found[1] + re.sub("/+", "/", found[2] + "/")
