import pytest

from gridbot_server.boinc.protocol import pages
from gridbot_server.boinc.protocol.pages import AccountError, ProjectConfig
from gridbot_server.boinc.protocol.tags import BoincError

URL = "http://127.0.0.1:8099/boinc/cgi"


def test_the_master_page_names_the_scheduler_on_a_line_of_its_own() -> None:
    lines = pages.master_page("Ann's <grid>", URL).splitlines()
    assert f'<link rel="boinc_scheduler" href="{URL}">' in lines
    assert "<title>Ann's &lt;grid&gt;</title>" in lines
    assert all(len(line) < 255 for line in lines)


@pytest.mark.parametrize(
    "url", ["http://a.b/x y", 'http://a.b/"', "http://a.b/?x&y", "http://a.b/" + "x" * 250, "a.b"]
)
def test_a_scheduler_url_that_clients_would_not_find_is_refused(url: str) -> None:
    with pytest.raises(BoincError, match="cannot be a scheduler's URL"):
        pages.master_page("p", url)


def test_the_project_config_tells_managers_what_to_ask() -> None:
    text = pages.project_config(
        ProjectConfig("p & q", "http://a.b/", ("x86_64-pc-linux-gnu", "windows_x86_64"))
    )
    assert text.startswith("<project_config>\n<name>p &amp; q</name>\n<master_url>http://a.b/<")
    assert "<platform>\n<platform_name>windows_x86_64</platform_name>\n</platform>\n" in text
    assert "<sched_stopped>0</sched_stopped>\n" in text
    assert "account_creation_disabled" not in text
    assert text.endswith("</project_config>\n")


def test_a_closed_project_says_so() -> None:
    text = pages.project_config(
        ProjectConfig("p", "http://a.b/", has_account_creation=False, is_stopped=True)
    )
    assert "<account_creation_disabled/>\n<client_account_creation_disabled/>\n" in text
    assert "<sched_stopped>1</sched_stopped>\n" in text


def test_an_account_is_answered_by_its_key() -> None:
    assert pages.account("b48d") == (
        "<account_out>\n<authenticator>b48d</authenticator>\n</account_out>\n"
    )


@pytest.mark.parametrize("error", AccountError)
def test_each_account_error_has_boincs_number_and_a_sentence(error: AccountError) -> None:
    text = pages.no_account(error)
    assert text.startswith(f"<error>\n<error_num>{error.value}</error_num>\n<error_msg>")
    assert text.endswith("</error_msg>\n</error>\n")


def test_the_password_hash_takes_the_address_in_lower_case() -> None:
    # What the stock client sent for this account.
    sent = "aca62ee8f02e347e9387d50165aa8f00"
    assert pages.password_hash("foo@example.com", "secret1") == sent
    assert pages.password_hash("Foo@Example.COM", "secret1") == sent
