"""Whose jobs a certificate's are: its subject, and the key that submits for that subject.

The map is a grid-mapfile, with a key's file in the place of an account: lines of

    "/DC=org/DC=example/CN=Ada" ada/key

Paths are relative to the map.  The signing key is the file `signing.key` beside the key, made when
it is missing.
"""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path

from cryptography import x509

from gridbot.api.connection import Connection
from gridbot.api.errors import BadInput
from gridbot_client.net.discovery import Endpoint, NoServer, find_server, remember_keys

_LINE = re.compile(r'\s*"([^"]+)"\s+(\S.*?)\s*')
_PROXY = x509.ObjectIdentifier("1.3.6.1.5.5.7.1.14")
# The end of a ProxyCertInfo whose policy is inheritAll (RFC 3820): all that the user may.
_INHERITS_ALL = bytes.fromhex("300a06082b06010505071501")
_LETTERS = {"1.2.840.113549.1.9.1": "emailAddress"}


def subject_of(certificate: bytes) -> str:
    """Whose a verified certificate (DER) is, as ARC writes it: /DC=org/CN=Ada.

    Of a proxy that is its user, who signed it.  Raises BadInput for a proxy of a proxy, and for one
    that its user has limited.
    """
    found = x509.load_der_x509_certificate(certificate)
    try:
        policy = found.extensions.get_extension_for_oid(_PROXY).value
    except x509.ExtensionNotFound:
        return _written(found.subject)
    assert isinstance(policy, x509.UnrecognizedExtension)
    if not policy.value.endswith(_INHERITS_ALL):
        raise BadInput(f"{_written(found.subject)}: a limited proxy certificate submits nothing")
    return _written(found.issuer)


def _written(name: x509.Name) -> str:
    """A name with its parts in the order of the certificate; slashes within them are marked."""
    return "".join(
        f"/{_LETTERS.get(part.oid.dotted_string, part.rfc4514_attribute_name)}="
        + str(part.value).replace("\\", "\\\\").replace("/", "\\/")
        for part in name
    )


class OwnerMap:
    """The map in a file, which is read at each call."""

    def __init__(self, path: Path) -> None:
        self.path = path.absolute()

    def accounts(self) -> dict[str, Path]:
        """The key's file of each subject.  Raises BadInput that names the line."""
        try:
            lines = self.path.read_text(encoding="utf-8").splitlines()
        except (OSError, UnicodeDecodeError) as error:
            raise BadInput(f"{self.path}: {error}") from None
        found = dict[str, Path]()
        for number, line in enumerate(lines, 1):
            if not line.strip() or line.lstrip().startswith("#"):
                continue
            match = _LINE.fullmatch(line)
            if match is None:
                raise BadInput(f'{self.path}, line {number}: expected "SUBJECT" FILE: {line[:200]}')
            if match[1] in found:
                raise BadInput(f"{self.path}, line {number}: {match[1]} has a line above; keep one")
            found[match[1]] = self.path.parent / match[2]
        return found


def endpoint_of(server: str | None, account: Path) -> Endpoint:
    """The server with the key in a file, and that key's own signing key.  Raises BadInput."""
    if not account.is_file():
        raise BadInput(f"{account}: there is no such file of a key")
    try:
        endpoint = find_server(server, account)
    except NoServer as error:
        raise BadInput(str(error)) from None
    return replace(endpoint, signing_key=account.with_name("signing.key"))


def connection_to(endpoint: Endpoint) -> Connection:
    """A connection with a key; no task of this machine's clients sees the one that signs."""
    if endpoint.signing_key is not None:
        remember_keys(endpoint.signing_key)
    return Connection(endpoint)
