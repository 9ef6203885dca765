"""A gatekeeper on a real socket, with an authority, its users, and their proxies."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import requests
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID
from tests.certificates import certified

from gridbot.gatekeeper.files import JobFiles
from gridbot.gatekeeper.jobs import AcceptedJobs
from gridbot.gatekeeper.owners import OwnerMap
from gridbot.gatekeeper.rest import ArcRest, GatekeeperLimits
from gridbot.gatekeeper.serving import GatekeeperServer, ServingLimits, TlsFiles, context_of

INHERIT_ALL = bytes.fromhex("300c300a06082b06010505071501")
LIMITED = bytes.fromhex("300f300d060b2b060104019b5001010109")
_PROXY = x509.ObjectIdentifier("1.3.6.1.5.5.7.1.14")


@dataclass(frozen=True)
class Credential:
    """A certificate with its key, and those that lead to its authority."""

    certificate: x509.Certificate
    key: ec.EllipticCurvePrivateKey
    chain: Sequence[x509.Certificate] = ()

    def write(self, path: Path) -> Path:
        pem = serialization.Encoding.PEM
        private = self.key.private_bytes(
            pem, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
        )
        parts = [self.certificate.public_bytes(pem), private]
        path.write_bytes(b"".join([*parts, *(item.public_bytes(pem) for item in self.chain)]))
        return path


def authority() -> Credential:
    return _issued(None, [("O", "Grid"), ("CN", "Authority")], is_authority=True)


def user(issuer: Credential, *names: str) -> Credential:
    return _issued(issuer, [("O", "Grid"), *(("CN", name) for name in names)])


def proxy(of: Credential, policy: bytes = INHERIT_ALL) -> Credential:
    """A proxy certificate (RFC 3820) that somebody signs."""
    subject = x509.Name([*of.certificate.subject, x509.NameAttribute(NameOID.COMMON_NAME, "12345")])
    found = _signed(of, subject, [(x509.UnrecognizedExtension(_PROXY, policy), True)])
    return Credential(found.certificate, found.key, (of.certificate, *of.chain))


def _issued(
    issuer: Credential | None, names: Sequence[tuple[str, str]], *, is_authority: bool = False
) -> Credential:
    kinds = {"O": NameOID.ORGANIZATION_NAME, "CN": NameOID.COMMON_NAME}
    subject = x509.Name([x509.NameAttribute(kinds[kind], text) for kind, text in names])
    return _signed(
        issuer, subject, [(x509.BasicConstraints(ca=is_authority, path_length=None), True)]
    )


def _signed(
    issuer: Credential | None,
    subject: x509.Name,
    extensions: Sequence[tuple[x509.ExtensionType, bool]],
) -> Credential:
    key = ec.generate_private_key(ec.SECP256R1())
    now = datetime.now(UTC)
    made = (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer.certificate.subject if issuer else subject)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - timedelta(days=1))
        .not_valid_after(now + timedelta(days=1))
    )
    for extension, is_critical in extensions:
        made = made.add_extension(extension, critical=is_critical)
    return Credential(made.sign(issuer.key if issuer else key, hashes.SHA256()), key)


@dataclass
class GatekeeperSite:
    """A gatekeeper in a folder, without its rounds: jobs stay as they were accepted."""

    folder: Path
    limits: GatekeeperLimits = field(default_factory=GatekeeperLimits)
    serving: ServingLimits = field(default_factory=ServingLimits)
    free_bytes: int = 0

    def __post_init__(self) -> None:
        self.authority = authority()
        self.map = self.folder / "owners.map"
        self.map.write_text('"/O=Grid/CN=Alice" alice/key\n"/O=Grid/CN=Bob" bob/key\n')
        self.jobs = AcceptedJobs(self.folder / "jobs.db", time.time, time.monotonic)
        self.files = JobFiles(self.folder / "files", self.free_bytes)
        self.url = ""

    @contextmanager
    def serve(self) -> Iterator[None]:
        host = certified(self.folder, "localhost")
        trusted = self.authority.write(self.folder / "authority.pem")
        rest = ArcRest(self.jobs, self.files, self.limits)
        context = context_of(TlsFiles(host, host, trusted))
        server = GatekeeperServer(
            ("127.0.0.1", 0), context, OwnerMap(self.map), rest.answer, self.serving
        )
        self.url = f"https://localhost:{server.server_port}/arex/rest"
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02})
        thread.start()
        try:
            yield
        finally:
            server.shutdown()
            thread.join()
            server.server_close()

    def person(self, credential: Credential, name: str) -> ArcPerson:
        return ArcPerson(self, credential.write(self.folder / f"{name}.pem"))


@dataclass(frozen=True)
class ArcPerson:
    """Somebody with a certificate."""

    site: GatekeeperSite
    certificate: Path

    def __call__(self, method: str, path: str, **options: Any) -> requests.Response:
        options["headers"] = {"Accept": "application/json", **options.get("headers", {})}
        return requests.request(
            method, self.site.url + path, cert=str(self.certificate), timeout=30.0,
            verify=str(self.site.folder / "localhost.pem"), **options,
        )  # fmt: skip

    def submit(self, text: str) -> list[dict[str, Any]]:
        answer = self("POST", "/1.0/jobs?action=new", data=text)
        assert answer.status_code == 201, answer.text
        found: list[dict[str, Any]] = answer.json()["job"]
        return found

    def act(self, action: str, *ids: str) -> list[dict[str, Any]]:
        body = {"job": [{"id": id} for id in ids]}
        answer = self("POST", f"/1.0/jobs?action={action}", json=body)
        assert answer.status_code == 201, answer.text
        found: list[dict[str, Any]] = answer.json()["job"]
        return found
