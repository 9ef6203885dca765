"""Redirections to an object store, from servers that mean no good."""

from __future__ import annotations

import pytest
import requests
from requests.structures import CaseInsensitiveDict

from gridbot_client.net.elsewhere import BadRedirection, Redirection


def answer(**headers: str) -> requests.Response:
    """A redirection with these headers."""
    found = requests.Response()
    found.status_code, found.url = 307, "https://grid.example.org/files/1"
    given = {"Location": "https://store.example.org/1"}
    given |= {name.replace("_", "-"): value for name, value in headers.items()}
    found.headers = CaseInsensitiveDict(given)
    return found


def test_a_redirection_to_a_store_is_read() -> None:
    found = Redirection.read(answer(Upload_Length="7", Upload_Headers='{"x-amz-a": "b"}'))
    assert found == Redirection("https://store.example.org/1", 7, {"x-amz-a": "b"})


@pytest.mark.parametrize(
    "headers",
    [
        {"Location": "//["},
        {"Location": "https://[::1"},
        {"Location": "file:///etc/passwd"},
        {"Location": "http://store.example.org/1"},
        {"Upload_Length": "-1"},
        {"Upload_Length": "9" * 5000},
        {"Upload_Headers": "[" * 100_000},
        {"Upload_Headers": "7"},
        {"Upload_Headers": '{"Authorization": "x"}'},
        {"Upload_Headers": '{"x-amz-a": "\\u2603"}'},
        {"Upload_Headers": '{"x-amz-\\u2603": "a"}'},
        {"Upload_Headers": '{"x-amz-a": "b\\r\\nHost: c"}'},
    ],
)
def test_a_hostile_redirection_is_refused(headers: dict[str, str]) -> None:
    with pytest.raises(BadRedirection):
        Redirection.read(answer(**headers))
