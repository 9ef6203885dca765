"""The pages that clients and their managers fetch: master page, project data, account answers."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from enum import IntEnum

from gridbot_server.boinc.protocol.tags import BoincError
from gridbot_server.credit.markup import block, element, escape, flag, given

# Clients read the master page in pieces of that length.
_MOST_LINE = 255
LEAST_PASSWORD = 6  # characters
_PLAIN_URL = re.compile(r"https?://[!#-%'-;=?-~]+")


def master_page(project: str, scheduler_url: str) -> str:
    """The page at the master URL: for people, with one line that clients look for.

    BoincError for an URL that this line cannot hold.
    """
    link = f'<link rel="boinc_scheduler" href="{scheduler_url}">'
    if not _PLAIN_URL.fullmatch(scheduler_url) or len(link) >= _MOST_LINE:
        raise BoincError(
            f"{scheduler_url!r} cannot be a scheduler's URL: at most 200 plain characters"
        )
    title = escape(project)
    return (
        "<!DOCTYPE html>\n<html><head>\n"
        f"{link}\n"
        f"<title>{title}</title>\n"
        f"</head><body>\n<h1>{title}</h1>\n"
        "<p>Attach your BOINC client to the address of this page.</p>\n"
        '<p><a href="account">Your account</a>: teams, and whether statistics name you</p>\n'
        '<p><a href="notices.php">News</a>, as RSS</p>\n'
        "</body></html>\n"
    )


def statistics(project: str, files: Iterable[str]) -> str:
    """The page that lists the statistics files; programs fetch those by their names."""
    title = f"Statistics of {escape(project)}"
    items = "".join(f'<li><a href="{name}">{name}</a></li>\n' for name in files)
    return (
        f"<!DOCTYPE html>\n<html><head>\n<title>{title}</title>\n"
        f"</head><body>\n<h1>{title}</h1>\n<ul>\n{items}</ul>\n</body></html>\n"
    )


@dataclass(frozen=True, slots=True)
class ProjectConfig:
    """What a manager asks before it attaches."""

    name: str
    master_url: str
    platforms: Sequence[str] = ()  # in BOINC's words
    has_account_creation: bool = True
    min_password_length: int = LEAST_PASSWORD
    is_stopped: bool = False  # the scheduler; this page still answers
    least_version: tuple[int, int, int] = (0, 0, 0)  # of clients that are given work
    terms: str = ""  # of use; its lines stay lines


def project_config(config: ProjectConfig) -> str:
    """The answer of `get_project_config.php`."""
    major, minor, release = config.least_version
    return block(
        "project_config",
        element("name", config.name),
        element("master_url", config.master_url),
        element("web_rpc_url_base", config.master_url),
        element("min_passwd_length", config.min_password_length),
        element("web_stopped", 0),
        element("sched_stopped", int(config.is_stopped)),
        given("terms_of_use", "<br>".join(map(escape, config.terms.splitlines()))),
        given("min_client_version", 10_000 * major + 100 * minor + release),
        flag("account_creation_disabled", not config.has_account_creation),
        flag("client_account_creation_disabled", not config.has_account_creation),
        block(
            "platforms",
            *(block("platform", element("platform_name", name)) for name in config.platforms),
        ),
    )


class AccountError(IntEnum):
    """Why an account is neither found nor made, in BOINC's numbers."""

    NOT_FOUND = -136
    NOT_UNIQUE = -137
    KEY_REVOKED = -155
    PROJECT_DOWN = -183
    BAD_NAME = -188
    BAD_EMAIL = -205
    BAD_PASSWORD = -206
    CREATION_DISABLED = -208
    NO_CONSENT = -242


_ACCOUNT_ERRORS = {
    AccountError.NOT_FOUND: "there is no account with this e-mail address and password",
    AccountError.NOT_UNIQUE: "this e-mail address has an account with another password",
    AccountError.KEY_REVOKED: "the key of this account was revoked: ask the operators",
    AccountError.PROJECT_DOWN: "the project does not look now, try again in a few minutes",
    AccountError.BAD_NAME: "this name cannot be a user's",
    AccountError.BAD_EMAIL: "this is no e-mail address",
    AccountError.BAD_PASSWORD: "the password is wrong",
    AccountError.CREATION_DISABLED: "accounts are made by the operators only, ask them for a key",
    AccountError.NO_CONSENT: "accounts need consent to the terms of use, which this client does"
    " not ask for: use a newer one, or BOINC's manager",
}


def account_exists() -> str:
    """The answer to a look-up without a password."""
    return block("account_out", flag("success"))


def failed(number: int, message: str) -> str:
    """The answer of a page that did not do what it was asked to."""
    return block("error", element("error_num", number), element("error_msg", message))


def account(authenticator: str) -> str:
    """The answer to a look-up or creation that succeeded; opens the account to whoever reads it."""
    return block("account_out", element("authenticator", authenticator))


def no_account(error: AccountError) -> str:
    """The answer to one that did not."""
    return failed(error.value, _ACCOUNT_ERRORS[error])


def password_hash(email: str, password: str) -> str:
    """What clients send instead of a password."""
    return _md5(password + email.lower())


def _md5(text: str) -> str:
    return hashlib.md5(text.encode(), usedforsecurity=False).hexdigest()
