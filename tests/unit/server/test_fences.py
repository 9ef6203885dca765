"""What the code does not do at all, so that no attack on it is possible."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[3]
SERVER = ROOT / "server" / "gridbot_server"
CLIENT = ROOT / "client" / "gridbot_client"


def trees(folder: Path) -> Iterator[tuple[str, ast.Module]]:
    for file in sorted(folder.rglob("*.py")):
        yield str(file.relative_to(folder)), ast.parse(file.read_text(encoding="utf-8"))


def calls(tree: ast.AST) -> Iterator[tuple[str, ast.Call]]:
    """All calls of a method or function, by its last name."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Call):
            if isinstance(node.func, ast.Attribute):
                yield node.func.attr, node
            elif isinstance(node.func, ast.Name):
                yield node.func.id, node


def is_put_together(node: ast.expr) -> bool:
    """Whether a text is made of others: by an f-string, + or %, or `format`."""
    if isinstance(node, ast.JoinedStr):
        return any(isinstance(part, ast.FormattedValue) for part in node.values)
    if isinstance(node, ast.BinOp):
        return isinstance(node.op, ast.Add | ast.Mod)
    return isinstance(node, ast.Call) and getattr(node.func, "attr", "") in ("format", "join")


EXECUTING = ("execute", "executemany", "copy", "stream")


def test_no_statement_is_put_together_of_texts() -> None:
    found = [
        f"{file}:{call.lineno}"
        for file, tree in trees(SERVER)
        for name, call in calls(tree)
        if name in EXECUTING and call.args and is_put_together(call.args[0])
    ]
    assert found == []


@pytest.mark.parametrize(
    "text", ["f'SELECT {x}'", "'SELECT ' + x", "'SELECT %s' % x", "'SELECT {}'.format(x)"]
)
def test_a_statement_that_is_put_together_is_seen(text: str) -> None:
    assert is_put_together(ast.parse(text, mode="eval").body)


def test_only_the_console_sets_or_reads_a_cookie() -> None:
    names = {"set_cookie", "delete_cookie", "cookies"}
    found = [
        f"{file}:{node.lineno}"
        for file, tree in trees(SERVER)
        for node in ast.walk(tree)
        if isinstance(node, ast.Attribute) and node.attr in names
        if not str(file).startswith(("console/", "http/sessions.py"))
    ]
    assert found == []


def imports(tree: ast.AST) -> Iterator[str]:
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (name.name for name in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module:
            yield node.module
            yield from (f"{node.module}.{name.name}" for name in node.names)


def test_the_server_itself_asks_no_address_but_its_object_store_and_those_of_notices() -> None:
    asking = {"requests", "urllib.request", "http.client", "urllib3", "ftplib", "smtplib"}
    found = {file for file, tree in trees(SERVER) if asking & set(imports(tree))}
    assert found == {
        "storage/files/s3.py",
        "cycles/notices/delivery.py",  # tests/http/test_notices.py: never one of its own network
        "console/openid.py",  # the provider at which people log in, which the settings name
        "overload/asking.py",  # the same and owners' storages, bounded in time
        "commands/app.py",  # a command of those who sign, which asks their server
        "supervision/lock_file.py",  # is the server at its own address healthy?
    }


def test_a_client_listens_nowhere_but_in_its_probes() -> None:
    found = {
        file
        for file, tree in trees(CLIENT)
        if any(name in ("listen", "create_server", "serve_forever") for name, _ in calls(tree))
    }
    assert found == {"walls/levels.py"}  # to prove that a task behind walls does not reach it
