"""Every knob of a server, and where each thing lies in its data directory."""

import hashlib
import ipaddress
import json
import os
import re
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import Self, cast
from urllib.parse import urlsplit

from gridbot_client.protocol.traces import MOST_TRACED_JOBS
from gridbot_server.storage import embedded
from gridbot_server.storage.disk import make_directory, write_atomically
from gridbot_server.storage.files import BucketPlace, FolderStore, S3Error, Store, open_bucket

# Names the data directory in the environment of every process of a server.
DATA_VARIABLE = "GRIDBOT_SERVER_DATA"

_MOST_NAME = 100  # characters of the project's name
_MOST_TERMS = 16_000  # bytes of the terms of use: what clients read of them is bounded
_CLIENT_VERSION = re.compile(r"([0-9]{1,3})\.([0-9]{1,2})(?:\.([0-9]{1,2}))?")
_ENDPOINT = re.compile(r"https?://([A-Za-z0-9.-]+|\[[0-9A-Fa-f:.]+\])(:[0-9]{1,5})?")
MOST_TRANSITIONERS = 16  # of a machine: each has connections of its own


class SettingsError(ValueError):
    """A knob has a value that no server can run with; the message says what to do."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """One field per knob; `<data>/settings.json` keeps all but `data`."""

    data: Path  # the data directory; absolute
    bind: str = "127.0.0.1:8765"  # address:port that gunicorn listens on
    public_url: str | None = None  # what clients are told; None = http://bind
    project_name: str = "GridBot"  # what BOINC clients call this server
    files_url: str | None = None  # s3://… where the files are; None = the folder `files`
    dsn: str | None = None  # libpq connection string; None = the embedded PostgreSQL
    sign_on_submit: bool = False  # the server signs what its operator submits
    public_page: bool = False  # the console shows everybody what the project computes
    boinc_accounts: bool = False  # anybody may make a volunteer's account from a BOINC client
    min_client_version: str = ""  # of BOINC clients that are given work, as "7.20.5"; "": any
    behind_proxy: bool = False  # a proxy in front of `bind` speaks TLS with the world
    mail_relay: str | None = None  # HOST:PORT that takes mail for people; None = none is sent
    mail_from: str = "gridbot@localhost"  # the sender of that mail
    oidc_issuer: str | None = None  # https://… of the OpenID provider at which people log in
    oidc_client_id: str = ""  # how it knows this server
    oidc_client_secret: str = ""  # "": it knows it by PKCE alone
    # Notices may be posted into private networks: RFC 1918, 6598 (100.64/10), 4193, fec0::/10.
    private_webhooks: bool = False
    webhook_networks: str = ""  # further ones, the server's own too: "127.0.0.1/32, fe80::/10"
    # Object stores to which outputs may go that owners name: "https://s3.example.org, https://…".
    storage_endpoints: str = ""
    otlp_endpoint: str | None = None  # http(s)://… of an OpenTelemetry collector; None = no traces
    traced_jobs: int = 100  # of a BOT, the first ones, have spans; and so many failures of others
    keep_ended_days: int | None = None  # before a BOT that has ended is deleted; None = for ever
    silent_seconds: int = 60  # least time without a request after which a client is silent
    statistics_seconds: int = 86_400  # between two exports of the statistics for BOINC's sites

    web_workers: int = 1  # gunicorn's processes; one is enough for two cores
    web_threads: int = 32  # requests served at once by each of them
    transitioners: int = 1  # processes of this machine that decide what jobs need next
    comparison_workers: int = 2  # processes that compare contents of answers
    client_requests_per_minute: int = 1200  # for work, of one client; also at once
    boinc_delay_seconds: int = 6  # between two requests for work of a BOINC client
    max_body_bytes: int = 16 << 20  # of one request that is not a file
    max_jobs_bytes: int = 32 << 20  # of one request that brings jobs
    max_input_bytes: int = 4 << 30  # of one file that a scientist uploads
    max_output_bytes: int = 1 << 30  # of one file that a replica uploads
    buffer_slots: int = 4096  # jobs that the scheduling buffer holds
    slot_bytes: int = 2048  # of one slot, header included

    def __post_init__(self) -> None:
        _check(self)

    @property
    def url(self) -> str:
        """The URL that clients are told."""
        return self.public_url or self.local_url

    @property
    def local_url(self) -> str:
        """The URL at which this machine reaches the server, past any proxy."""
        host, port = split_bind(self.bind)
        reachable = {"0.0.0.0": "127.0.0.1", "::": "::1"}.get(host, host)  # noqa: S104
        return f"http://[{reachable}]:{port}" if ":" in reachable else f"http://{reachable}:{port}"

    @property
    def dsn_or_embedded(self) -> str:
        """The connection string of the database in use."""
        return self.dsn or embedded.dsn(self.data)

    @property
    def least_client_version(self) -> tuple[int, int, int]:
        """The version that `min_client_version` names; zeros for any.  Raises SettingsError."""
        if not self.min_client_version:
            return 0, 0, 0
        if (found := _CLIENT_VERSION.fullmatch(self.min_client_version)) is None:
            raise SettingsError(
                f"min_client_version must be MAJOR.MINOR or MAJOR.MINOR.RELEASE, such as 7.20.5,"
                f" not {self.min_client_version!r}"
            )
        return int(found[1]), int(found[2]), int(found[3] or 0)

    @property
    def terms_path(self) -> Path:
        """The terms of use, a plain text, to which who makes an account agrees; if it is there."""
        return self.data / "terms_of_use.txt"

    def terms_of_use(self) -> str:
        """The text of the terms of use; "" where there are none.  Raises SettingsError."""
        try:
            content = self.terms_path.read_bytes()
        except FileNotFoundError:
            return ""
        except OSError as error:
            raise SettingsError(f"{self.terms_path}: {error.strerror}") from None
        if len(content) > _MOST_TERMS:
            raise SettingsError(
                f"{self.terms_path}: {len(content)} bytes, at most {_MOST_TERMS} reach a client"
            )
        try:
            return content.decode().strip()
        except UnicodeDecodeError as error:
            raise SettingsError(f"{self.terms_path}: not UTF-8: {error}") from None

    @property
    def allowed_networks(self) -> Sequence[ipaddress.IPv4Network | ipaddress.IPv6Network]:
        """Networks that `webhook_networks` names.  Raises SettingsError."""
        names = [name.strip() for name in self.webhook_networks.split(",") if name.strip()]
        try:
            return [ipaddress.ip_network(name) for name in names]
        except ValueError as error:
            raise SettingsError(
                f"webhook_networks: {error}; write 10.1.0.0/16, fe80::/10"
            ) from None

    @property
    def allowed_endpoints(self) -> Sequence[str]:
        """Addresses that `storage_endpoints` names.  Raises SettingsError."""
        found = [
            url.strip().rstrip("/") for url in self.storage_endpoints.split(",") if url.strip()
        ]
        for url in found:
            if not _ENDPOINT.fullmatch(url):
                raise SettingsError(f"storage_endpoints: {url!r} is no https://HOST or http://HOST")
        return found

    @property
    def buffer_path(self) -> Path:
        """The shared scheduling buffer; in memory, so its name must tell servers apart."""
        digest = hashlib.sha256(os.fsencode(self.data)).hexdigest()[:16]
        return Path(f"/dev/shm/gridbot-{digest}.buffer")  # noqa: S108

    @property
    def daemons(self) -> list[str]:
        """The processes that run cycles: any of them may lead, each runs a transitioner."""
        return ["daemons", *(f"daemons-{number}" for number in range(2, self.transitioners + 1))]

    @property
    def lock_path(self) -> Path:
        """Locked by the supervisor while it runs."""
        return self.data / "lock"

    @property
    def endpoint_path(self) -> Path:
        """There while the server is healthy: its url, pid and data directory."""
        return self.data / "endpoint.json"

    @property
    def signing_key_path(self) -> Path:
        """The operator's private key that signs their BOTs; for commands of that person."""
        return self.data / "signing.key"

    @property
    def operator_key_path(self) -> Path:
        """The operator's token, for the owner's eyes only."""
        return self.data / "operator.key"

    @property
    def project_key_path(self) -> Path:
        """The private key that signs application manifests, for the owner's eyes only."""
        return self.data / "project.key"

    @property
    def project_public_path(self) -> Path:
        """Its public half, put here before the first start when the private one is elsewhere."""
        return self.data / "project.pub"

    @property
    def boinc_key_path(self) -> Path:
        """The private key that signs applications for BOINC clients, for the owner's eyes only."""
        return self.data / "boinc.key"

    @property
    def boinc_public_path(self) -> Path:
        """Its public half, put here before the first start when the private one is elsewhere."""
        return self.data / "boinc.pub"

    @property
    def storage_key_path(self) -> Path:
        """The key under which the database keeps the secrets of owners' storages."""
        return self.data / "storage.key"

    @property
    def files(self) -> Path:
        """Content, by digest."""
        return self.data / "files"

    @property
    def uploads(self) -> Path:
        """Files of which only a part has arrived."""
        return self.data / "uploads"

    @property
    def statistics(self) -> Path:
        """The files of the statistics export, for everybody to fetch."""
        return self.data / "stats"

    @property
    def run(self) -> Path:
        """Sockets and process records: worthless after a reboot."""
        return self.data / "run"

    @property
    def log(self) -> Path:
        """One log file per process."""
        return self.data / "log"

    @property
    def s3_credentials_path(self) -> Path:
        """Credentials of the object store, where the environment has none."""
        return self.data / "s3.credentials"

    def open_store(self) -> Store:
        """Return the store with the files.  Raises SettingsError without credentials for it."""
        if self.files_url is None:
            return FolderStore(self.files, self.uploads)
        try:
            return open_bucket(self.files_url, self.uploads, os.environ, self.s3_credentials_path)
        except S3Error as error:
            raise SettingsError(str(error)) from None

    def make_directories(self) -> None:
        """Make the data directory and those below it; leave any other directory's mode alone."""
        make_directory(self.data)
        make_directory(self.run)
        for private in (self.files, self.uploads, self.log):
            make_directory(private, 0o700)

    def save(self) -> None:
        """Write `settings.json`, at once or not at all; it may hold the database's password."""
        knobs = {name: value for name, value in asdict(self).items() if name != "data"}
        write_atomically(_path(self.data), json.dumps(knobs, indent=2) + "\n")

    @classmethod
    def load(cls, data: Path) -> Self:
        """Read `settings.json`, or the defaults.  Raises SettingsError, also for unknown names."""
        path = _path(data)
        try:
            knobs = json.loads(path.read_text()) if path.exists() else {}
        except ValueError as error:
            raise SettingsError(f"{path}: not valid JSON: {error}; repair or delete it") from None
        known = {field.name for field in fields(cls)} - {"data"}
        for name in knobs:
            if name not in known:
                raise SettingsError(
                    f"{path}: unknown setting {name}; known settings: {', '.join(sorted(known))}"
                )
        return cls(data=data.absolute(), **knobs)


def default_data(environment: Mapping[str, str], uid: int) -> Path:
    """Return the default data directory of a server."""
    if chosen := environment.get("GRIDBOT_DATA"):
        return Path(chosen).absolute() / "server"
    if uid == 0:
        return Path("/var/lib/gridbot/server")
    share = environment.get("XDG_DATA_HOME") or Path(environment.get("HOME", "~")) / ".local/share"
    return Path(share).expanduser() / "gridbot" / "server"


def split_bind(bind: str) -> tuple[str, int]:
    """Split `address:port` or `[address]:port`."""
    host, _, port = bind.rpartition(":")
    if not host or not port.isascii() or not port.isdigit() or not 0 < int(port) < 65536:
        raise SettingsError(f"cannot bind to {bind!r}; write ADDRESS:PORT, such as 127.0.0.1:8765")
    return host.removeprefix("[").removesuffix("]"), int(port)


def _path(data: Path) -> Path:
    return data / "settings.json"


def _check(settings: Settings) -> None:
    for field in fields(settings):
        _check_type(field.name, cast(type[object], field.type), getattr(settings, field.name))
    _check_name(settings.project_name)
    if settings.transitioners > MOST_TRANSITIONERS:
        raise SettingsError(
            f"transitioners must be at most {MOST_TRANSITIONERS}, not {settings.transitioners}"
        )
    if settings.public_url and not settings.public_url.startswith(("http://", "https://")):
        raise SettingsError(f"the public URL {settings.public_url!r} is not a URL; write https://…")
    if settings.mail_relay is not None:
        split_bind(settings.mail_relay)
    if not re.fullmatch(r"[^@\s<>,]+@[^@\s<>,]+", settings.mail_from):
        raise SettingsError(f"mail_from must be NAME@HOST, not {settings.mail_from!r}")
    _ = settings.allowed_networks, settings.allowed_endpoints, settings.least_client_version
    _check_openid(settings)
    _check_tracing(settings)
    if settings.files_url is not None:
        try:
            BucketPlace.parse(settings.files_url)
        except S3Error as error:
            raise SettingsError(f"--files: {error}") from None
    host, _ = split_bind(settings.bind)
    if _is_loopback(host):
        return
    if not settings.behind_proxy:
        raise SettingsError(
            f"binding to {settings.bind} would expose keys and results on the network; put a TLS"
            " proxy in front and add --behind-proxy, or bind to 127.0.0.1"
        )
    if settings.public_url is None:
        raise SettingsError(
            f"the public URL of the proxy in front of {settings.bind} is unknown;"
            " add --url https://…"
        )


def _check_type(name: str, kind: type[object], value: object) -> None:
    if kind == int | None and value is None:
        return
    if kind in (int, int | None) and (type(value) is not int or value < 1):
        raise SettingsError(f"{name} must be a whole number above 0, not {value!r}")
    if not isinstance(value, kind):
        wanted = "true or false" if kind is bool else "a string"
        raise SettingsError(f"{name} must be {wanted}, not {value!r}")


def _check_openid(settings: Settings) -> None:
    if settings.oidc_issuer is None:
        return
    if not _is_issuer(settings.oidc_issuer):
        raise SettingsError(f"oidc_issuer must be https://…, not {settings.oidc_issuer!r}")
    if not settings.oidc_client_id:
        raise SettingsError("oidc_issuer needs oidc_client_id, which the provider gave you")


def _check_tracing(settings: Settings) -> None:
    url = settings.otlp_endpoint
    if url is not None and not _is_http(url):
        raise SettingsError(
            f"otlp_endpoint must be http://HOST:PORT or https://…, not {url!r}; what the collector"
            " wants to know of us is given in OTEL_EXPORTER_OTLP_HEADERS"
        )
    if settings.traced_jobs > MOST_TRACED_JOBS:
        raise SettingsError(
            f"traced_jobs must be at most {MOST_TRACED_JOBS}, not {settings.traced_jobs}"
        )


def _is_http(url: str) -> bool:
    try:
        found = urlsplit(url)
    except ValueError:
        return False
    is_plain = url.isprintable() and not set("@?# ") & set(url)
    return found.scheme in ("http", "https") and bool(found.hostname) and is_plain


def _is_issuer(url: str) -> bool:
    """Whether an OpenID provider may be called so: by TLS, but for one of this machine."""
    try:
        found = urlsplit(url)
    except ValueError:
        return False
    host = found.hostname or ""
    is_plain = url.isprintable() and not set("@?#") & set(url)
    is_local = found.scheme == "http" and _is_loopback(host)
    return bool(host) and is_plain and (found.scheme == "https" or is_local)


def _check_name(name: str) -> None:
    """Check the project's name, which is shown on pages, in clients' lists and in logs."""
    if not name.strip() or len(name) > _MOST_NAME or not name.isprintable():
        raise SettingsError(
            f"project_name must have 1 to {_MOST_NAME} printable characters, not {name[:200]!r}"
        )


def _is_loopback(host: str) -> bool:
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False
