"""The files with which a server is deployed: checked, and nginx's with TLS in front of a server."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
import requests
import yaml
from tests.system.deployment import Deployment
from tests.system.nginx_front import DEPLOY, SEARCH, NginxFront, nginx_front

from gridbot_server.commands.server import start

ROOT = Path(__file__).resolve().parents[2]


def test_the_nginx_file_is_complete(tmp_path: Path) -> None:
    front = NginxFront(tmp_path, ["127.0.0.1:1", "127.0.0.1:2"])
    front.prepare()
    command = ["nginx", "-t", "-c", str(front.file)]
    done = subprocess.run(command, env=SEARCH, capture_output=True, text=True)
    assert "syntax is ok" in done.stderr
    assert "[warn]" not in done.stderr, done.stderr


def test_the_unit_is_one_that_systemd_takes(tmp_path: Path) -> None:
    if shutil.which("systemd-analyze") is None and "CI" not in os.environ:
        pytest.skip("no systemd here")
    text = (DEPLOY / "gridbot-server.service").read_text(encoding="utf-8")
    unit = tmp_path / "gridbot-server.service"
    unit.write_text(text.replace("/opt/gridbot/bin/gridbot", "/bin/true"))
    done = subprocess.run(
        ["systemd-analyze", "verify", "--man=no", unit], capture_output=True, text=True
    )
    assert "gridbot-server.service:" not in done.stderr, done.stderr


def test_compose_names_what_is_there() -> None:
    document = yaml.safe_load((DEPLOY / "compose.yaml").read_text(encoding="utf-8"))
    services = document["services"]
    assert set(services) == {"one", "two", "database", "store", "nginx"}
    build = services["one"]["build"]
    assert ((DEPLOY / build["context"]).resolve() / build["dockerfile"]).exists()
    mounted = {place.split(":")[0] for item in services.values() for place in item["volumes"]}
    assert {name for name in mounted if not name.startswith(".")} == set(document["volumes"])
    text = str(services["one"])
    assert "password=" not in text
    options = {word.split("=")[0] for word in services["one"]["command"] if word.startswith("--")}
    known = {option for item in start.params for option in (*item.opts, *item.secondary_opts)}
    assert options <= known


def test_the_image_is_made_of_what_is_there() -> None:
    lines = (DEPLOY / "Dockerfile").read_text(encoding="utf-8").splitlines()
    copied = [
        line.split()[1:-1] for line in lines if line.startswith("COPY ") and "--from" not in line
    ]
    assert copied
    assert [name for names in copied for name in names if not (ROOT / name).exists()] == []


@pytest.fixture
def behind_tls(fresh: Deployment) -> Iterator[Deployment]:
    """A server behind nginx, which speaks TLS with the world."""
    with nginx_front(fresh.folder, [f"127.0.0.1:{fresh.port}"]) as front:
        fresh.start("--behind-proxy", "--url", front.url)
        fresh.env["REQUESTS_CA_BUNDLE"] = str(front.bundle)
        assert front.redirects() == "https://localhost/health"
        yield fresh


def test_a_bot_with_files_goes_through_nginx_and_tls(behind_tls: Deployment) -> None:
    url = str(behind_tls.settings.public_url)
    content = b"through TLS\n" * 100_000
    table = behind_tls.file("table", content)
    bot = behind_tls.submit(
        "--input", f"{table}=table", "--output", "copy", "--range", "0:3", "--",
        "sh", "-c", "cat table > copy",
    )  # fmt: skip
    key = behind_tls.settings.operator_key_path
    behind_tls.client("worker", "--cpus", "2", "--server", url, "--key-file", str(key))
    behind_tls.wait(bot, 120)
    bundle = behind_tls.env["REQUESTS_CA_BUNDLE"]
    headers = {"Authorization": f"Bearer {behind_tls.operator_key}"}
    for job in range(3):
        output = f"{url}/api/v1/bots/{bot}/outputs/{job}/copy"
        found = requests.get(output, headers=headers, verify=bundle, timeout=30)
        assert found.content == content
    assert found.headers["Strict-Transport-Security"]
    assert "Bearer" not in (behind_tls.folder / "access.log").read_text()


def test_no_key_of_an_account_stands_in_nginx_logs_when_servers_are_away(tmp_path: Path) -> None:
    with nginx_front(tmp_path, ["127.0.0.1:1"]) as front:
        for page in ("am_get_info.php?account_key=SECRET", "lookup_account.php?passwd_hash=SECRET"):
            answer = requests.get(f"{front.url}/boinc/{page}", verify=str(front.bundle), timeout=30)
            assert answer.status_code == 502
        assert (
            requests.get(f"{front.url}/", verify=str(front.bundle), timeout=30).status_code == 502
        )
        logs = [(tmp_path / name).read_text() for name in ("access.log", "error.log")]
    assert all(logs)
    assert [log for log in logs if "SECRET" in log] == []
