"""What keeps a machine from its server is told in words, to the client and on the command line."""

from __future__ import annotations

import datetime
import socket
import ssl
import threading
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from pathlib import Path

import pytest
from click.testing import CliRunner
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID
from tests.system.deployment import Deployment

from gridbot.cli import gridbot

DAY = datetime.timedelta(days=1)
Reply = Callable[[bytes], bytes]


def certificate(folder: Path, name: str, begin: int, end: int) -> ssl.SSLContext:
    """A server's side of TLS, with a certificate that it signed itself; days from today."""
    key = ec.generate_private_key(ec.SECP256R1())
    own = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])
    today = datetime.datetime.now(datetime.UTC)
    made = (
        x509.CertificateBuilder()
        .subject_name(own)
        .issuer_name(own)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(today + begin * DAY)
        .not_valid_after(today + end * DAY)
        .add_extension(x509.SubjectAlternativeName([x509.DNSName(name)]), critical=False)
        .sign(key, hashes.SHA256())
    )
    pem = folder / "cert.pem"
    pem.write_bytes(
        made.public_bytes(serialization.Encoding.PEM)
        + key.private_bytes(
            serialization.Encoding.PEM,
            serialization.PrivateFormat.PKCS8,
            serialization.NoEncryption(),
        )
    )
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(pem)
    return context


@contextmanager
def answering(reply: Reply, tls: ssl.SSLContext | None = None) -> Iterator[int]:
    """A port on which each connection is answered once and closed."""
    with closing(socket.create_server(("127.0.0.1", 0))) as listener:

        def serve() -> None:
            while True:
                try:
                    peer, _ = listener.accept()
                except OSError:
                    return
                try:
                    with tls.wrap_socket(peer, server_side=True) if tls else peer as found:
                        found.sendall(reply(found.recv(65_536)))
                except OSError:
                    peer.close()

        thread = threading.Thread(target=serve)
        thread.start()
        try:
            yield listener.getsockname()[1]
        finally:
            listener.shutdown(socket.SHUT_RDWR)
            thread.join()


def page(status: str, body: str = "", *headers: str) -> Reply:
    lines = [f"HTTP/1.1 {status}", f"Content-Length: {len(body)}", "Connection: close", *headers]
    return lambda _: "\r\n".join([*lines, "", body]).encode()


def told(url: str, folder: Path, **more: str) -> tuple[str, str]:
    """What `gridbot bot list` and `gridbot client join` say of a server."""
    environment = {
        "GRIDBOT_SERVER": url, "GRIDBOT_KEY": "key", "GRIDBOT_DATA": str(folder),
        "XDG_CONFIG_HOME": str(folder), "NO_PROXY": "*", **more,
    }  # fmt: skip
    runner = CliRunner(env=environment)
    listed = runner.invoke(gridbot, ["bot", "list"])
    joined = runner.invoke(gridbot, ["client", "join", url, "--key", "key"])
    assert listed.exit_code != 0
    assert joined.exit_code != 0
    return listed.stderr, joined.stderr


def test_https_on_a_plain_port_is_told_at_once(running: Deployment, tmp_path: Path) -> None:
    for said in told(f"https://127.0.0.1:{running.port}", tmp_path):
        assert (
            "it does not speak TLS there; if that is right, write"
            f" http://127.0.0.1:{running.port}" in said
        )


@pytest.mark.parametrize(
    "words",
    ["<center>The plain HTTP request was sent to HTTPS port</center>",
     "Client sent an HTTP request to an HTTPS server.\n",
     "Reason: You're speaking plain HTTP to an SSL-enabled server port.<br />"],
)  # fmt: skip
def test_http_on_a_port_for_tls_is_told(words: str, tmp_path: Path) -> None:
    with answering(page("400 Bad Request", words)) as port:
        for said in told(f"http://127.0.0.1:{port}", tmp_path):
            assert f"speaks TLS only; write https://127.0.0.1:{port}" in said


def test_a_port_that_hangs_up_on_plain_http_may_speak_tls(tmp_path: Path) -> None:
    with answering(lambda _: b"") as port:
        for said in told(f"http://127.0.0.1:{port}", tmp_path):
            assert "ends the connection without an answer; if it speaks TLS only" in said


@pytest.mark.parametrize(
    ("name", "begin", "end", "words"),
    [
        ("localhost", -1, 1, "signed by nobody whom this machine trusts; where the network inspects"
         " TLS, give its certificate: REQUESTS_CA_BUNDLE=FILE.pem"),
        ("localhost", -9, -1, "has expired; is this machine's clock right?"),
        ("localhost", 1, 9, "is not valid yet; is this machine's clock right?"),
        ("elsewhere", -1, 1, "is not for the name localhost"),
    ],
)  # fmt: skip
def test_a_certificate_that_is_not_accepted_is_told_in_words(
    name: str, begin: int, end: int, words: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    context = certificate(tmp_path, name, begin, end)
    if "signed by nobody" not in words:
        monkeypatch.setenv("REQUESTS_CA_BUNDLE", str(tmp_path / "cert.pem"))
    with answering(page("200 OK"), context) as port:
        _, joined = told(f"https://localhost:{port}", tmp_path)
        assert words in joined


@pytest.mark.parametrize(
    ("text", "words"),
    [(None, "REQUESTS_CA_BUNDLE (or CURL_CA_BUNDLE) names"), ("no PEM", "TLS fails: ")],
)
def test_certificates_that_cannot_be_read_are_told(
    text: str | None, words: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    bundle = tmp_path / "ca.pem"
    if text is not None:
        bundle.write_text(text)
    monkeypatch.setenv("REQUESTS_CA_BUNDLE", str(bundle))
    context = certificate(tmp_path, "localhost", -1, 1)
    with answering(page("200 OK"), context) as port:
        for said in told(f"https://localhost:{port}", tmp_path):
            assert words in said


def test_no_proxy_of_the_site_is_asked_for_a_server_of_this_machine(
    running: Deployment, tmp_path: Path
) -> None:
    proxy = {"http_proxy": "http://127.0.0.1:9", "NO_PROXY": "", "no_proxy": ""}
    assert all("unknown" in said for said in told(running.url, tmp_path, **proxy))
    for said in told("http://grid.invalid", tmp_path, **proxy):
        assert "the proxy of this machine (HTTPS_PROXY, HTTP_PROXY) fails" in said


def test_a_server_that_moved_is_named(tmp_path: Path) -> None:
    place = "Location: https://new.example.org"
    with answering(
        lambda asked: page("301 Moved", "", place + asked.split()[1].decode())(asked)
    ) as port:
        listed, _ = told(f"http://127.0.0.1:{port}", tmp_path)
        assert "has moved to https://new.example.org; give that URL" in listed


def test_a_networks_login_page_is_noticed(tmp_path: Path) -> None:
    with answering(page("302 Found", "", "Location: http://login.example.org/welcome")) as port:
        listed, _ = told(f"http://127.0.0.1:{port}", tmp_path)
        assert "leads to http://login.example.org/welcome, which is no GridBot server" in listed
