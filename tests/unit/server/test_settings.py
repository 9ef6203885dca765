"""Claims about the server's settings and its data directory."""

import json
from pathlib import Path

import pytest

from gridbot_server.commands.serve import children
from gridbot_server.settings import Settings, SettingsError, default_data, split_bind


def test_what_is_saved_is_loaded(tmp_path: Path) -> None:
    settings = Settings(data=tmp_path, bind="127.0.0.1:9000", dsn="dbname=x", sign_on_submit=True)
    settings.save()
    assert Settings.load(tmp_path) == settings


def test_bots_are_kept_for_ever_unless_a_time_is_set(tmp_path: Path) -> None:
    assert Settings(data=tmp_path).keep_ended_days is None
    Settings(data=tmp_path, keep_ended_days=30).save()
    assert Settings.load(tmp_path).keep_ended_days == 30


def test_each_transitioner_of_a_machine_is_a_process_of_its_own(tmp_path: Path) -> None:
    settings = Settings(data=tmp_path, transitioners=3)
    names = [child.name for child in children(settings, {})]
    assert names == ["gunicorn", "feeder", "daemons", "daemons-2", "daemons-3"]


def test_a_directory_without_settings_gives_the_defaults(tmp_path: Path) -> None:
    assert Settings.load(tmp_path) == Settings(data=tmp_path)


def test_saved_settings_are_for_the_owners_eyes_only(tmp_path: Path) -> None:
    Settings(data=tmp_path, dsn="password=secret").save()
    assert (tmp_path / "settings.json").stat().st_mode & 0o777 == 0o600


@pytest.mark.parametrize(
    ("knobs", "message"),
    [
        ({"web_worker": 2}, "unknown setting web_worker; known settings: behind_proxy"),
        ({"web_workers": 0}, "web_workers must be a whole number above 0, not 0"),
        ({"web_workers": True}, "web_workers must be a whole number above 0, not True"),
        ({"keep_ended_days": 0}, "keep_ended_days must be a whole number above 0, not 0"),
        ({"keep_ended_days": "30"}, "keep_ended_days must be a whole number above 0, not '30'"),
        ({"otlp_endpoint": "collector:4318"}, "otlp_endpoint must be http://HOST:PORT or"),
        ({"otlp_endpoint": "http://key@collector:4318"}, "otlp_endpoint must be http://HOST:PORT"),
        ({"otlp_endpoint": "http://[collector"}, "otlp_endpoint must be http://HOST:PORT or"),
        ({"traced_jobs": 0}, "traced_jobs must be a whole number above 0, not 0"),
        ({"traced_jobs": 1_000_001}, "traced_jobs must be at most 1000000, not 1000001"),
        ({"transitioners": 17}, "transitioners must be at most 16, not 17"),
        ({"bind": 80}, "bind must be a string, not 80"),
        ({"min_client_version": "7"}, "min_client_version must be MAJOR.MINOR or .*, not '7'"),
        ({"min_client_version": "7.20.5.1"}, "min_client_version must be MAJOR.MINOR or"),
        ({"min_client_version": "7.200"}, "min_client_version must be MAJOR.MINOR or"),
        ({"sign_on_submit": "yes"}, "sign_on_submit must be true or false, not 'yes'"),
        ({"oidc_issuer": "http://id.example.org"}, "oidc_issuer must be https://…, not 'http:"),
        ({"oidc_issuer": "https://id.example.org/?a=b"}, "oidc_issuer must be https://…, not"),
        ({"storage_endpoints": "s3.example.org"}, "'s3.example.org' is no https://HOST"),
        ({"storage_endpoints": "https://me@s3.example.org"}, "is no https://HOST"),
        ({"storage_endpoints": "https://a, https://b/path"}, "'https://b/path' is no https://HOST"),
        ({"oidc_issuer": "https://[id"}, "oidc_issuer must be https://…, not"),
        ({"oidc_issuer": "http://127.0.0.1:1@id.example.org"}, "oidc_issuer must be https"),
        ({"oidc_issuer": "https://id.example.org"}, "oidc_issuer needs oidc_client_id"),
        ({"webhook_networks": "10.0.0.1/8"}, "webhook_networks: 10.0.0.1/8 has host bits set"),
        ({"project_name": " "}, "project_name must have 1 to 100 printable characters, not ' '"),
        ({"project_name": "a\nb"}, "project_name must have 1 to 100 printable characters"),
        ({"project_name": "x" * 101}, "project_name must have 1 to 100 printable characters"),
    ],
)
def test_a_wrong_knob_is_refused_by_name(
    tmp_path: Path, knobs: dict[str, object], message: str
) -> None:
    (tmp_path / "settings.json").write_text(json.dumps(knobs))
    with pytest.raises(SettingsError, match=message):
        Settings.load(tmp_path)


def test_a_broken_settings_file_is_named(tmp_path: Path) -> None:
    (tmp_path / "settings.json").write_text("{")
    with pytest.raises(SettingsError, match=r"settings\.json: not valid JSON"):
        Settings.load(tmp_path)


@pytest.mark.parametrize("content", [b"x" * 16_001, b"\xff"])
def test_terms_of_use_that_clients_cannot_read_are_refused(tmp_path: Path, content: bytes) -> None:
    settings = Settings(data=tmp_path)
    assert settings.terms_of_use() == ""
    settings.terms_path.write_bytes(content)
    with pytest.raises(SettingsError, match=r"terms_of_use\.txt: (16001 bytes|not UTF-8)"):
        settings.terms_of_use()


@pytest.mark.parametrize("bind", ["127.0.0.1:1", "[::1]:8765", "localhost:80", "127.9.9.9:80"])
def test_loopback_needs_no_proxy(bind: str) -> None:
    assert Settings(data=Path("/d"), bind=bind).bind == bind


@pytest.mark.parametrize("bind", ["0.0.0.0:80", "[::]:80", "192.0.2.1:80", "grid.example:80"])
def test_another_address_is_refused_without_a_declared_proxy(bind: str) -> None:
    with pytest.raises(
        SettingsError, match="put a TLS proxy in front and add --behind-proxy, or bind to 127"
    ):
        Settings(data=Path("/d"), bind=bind)


def test_a_declared_proxy_needs_its_url() -> None:
    with pytest.raises(SettingsError, match="add --url https"):
        Settings(data=Path("/d"), bind="0.0.0.0:80", behind_proxy=True)


def test_a_public_url_that_is_none_is_refused() -> None:
    with pytest.raises(SettingsError, match=r"'grid.example' is not a URL; write https://…"):
        Settings(data=Path("/d"), public_url="grid.example")


def test_behind_a_proxy_clients_and_this_machine_have_different_urls() -> None:
    settings = Settings(
        data=Path("/d"), bind="0.0.0.0:80", behind_proxy=True, public_url="https://grid.example"
    )
    assert (settings.url, settings.local_url) == ("https://grid.example", "http://127.0.0.1:80")


def test_an_ipv6_address_stays_in_brackets() -> None:
    assert Settings(data=Path("/d"), bind="[::1]:80").url == "http://[::1]:80"


@pytest.mark.parametrize(
    "bind", ["", "8765", "host", ":80", "host:", "host:0", "host:65536", "h:²"]
)
def test_an_address_without_a_port_is_refused(bind: str) -> None:
    with pytest.raises(SettingsError, match="write ADDRESS:PORT"):
        split_bind(bind)


@pytest.mark.parametrize(
    ("environment", "uid", "path"),
    [
        ({"GRIDBOT_DATA": "/g", "HOME": "/h"}, 0, "/g/server"),
        ({"HOME": "/root"}, 0, "/var/lib/gridbot/server"),
        ({"HOME": "/h"}, 1, "/h/.local/share/gridbot/server"),
        ({"HOME": "/h", "XDG_DATA_HOME": "/x"}, 1, "/x/gridbot/server"),
    ],
)
def test_the_data_directory_has_a_default(environment: dict[str, str], uid: int, path: str) -> None:
    assert default_data(environment, uid) == Path(path)


def test_two_data_directories_have_two_buffers() -> None:
    assert Settings(data=Path("/a")).buffer_path != Settings(data=Path("/b")).buffer_path


def test_only_directories_that_we_make_get_our_modes(tmp_path: Path) -> None:
    parent = tmp_path / "parent"
    parent.mkdir(mode=0o700)
    Settings(data=parent / "between" / "data").make_directories()
    modes = [
        (tmp_path / "parent" / place).stat().st_mode & 0o777
        for place in (".", "between", "between/data", "between/data/files")
    ]
    assert modes == [0o700, 0o711, 0o711, 0o700]


def test_a_full_directory_keeps_its_mode(tmp_path: Path) -> None:
    data = tmp_path / "home"
    data.mkdir(mode=0o700)
    (data / "letter").touch()
    Settings(data=data).make_directories()
    assert data.stat().st_mode & 0o777 == 0o700
