"""What a task sees of the file system: mounts at level 2, Landlock's rules at all levels.

A stranger sees the system's programs and libraries.  One's own work sees everything, but neither
the client's folder nor well-known places of keys, nor places where other programs listen.  Both
write only into their slot, and where the machine's owner lets them.

At level 2 the view is made of mounts, in this order: copies of all mounts that will be needed are
taken while the old tree is whole; everything becomes read-only; then copies and new file systems
are attached, parents before children.  Paths below another's mount are thus made inside it.
"""

from __future__ import annotations

import os
from collections.abc import Collection, Iterator
from dataclasses import dataclass
from glob import glob

from gridbot_client.walls import kernel, landlock
from gridbot_client.walls.cells import Cell

PROGRAMS = ("/usr", "/bin", "/sbin", "/lib", "/lib32", "/lib64", "/libx32", "/nix/store")
SETTINGS = tuple(
    f"/etc/{name}"
    for name in (
        "passwd", "group", "nsswitch.conf", "hosts", "host.conf", "protocols", "services",
        "resolv.conf", "gai.conf", "ld.so.cache", "ld.so.conf", "ld.so.conf.d", "alternatives",
        "ssl/certs", "ssl/openssl.cnf", "ca-certificates", "pki/tls/certs", "crypto-policies",
        "localtime", "timezone", "locale.conf", "locale.alias", "default/locale", "fonts",
        "mime.types", "terminfo", "os-release", "debian_version", "profile", "bash.bashrc",
        "inputrc", "python3", "python3.11", "perl", "R", "java", "octave", "gnuplot", "magic",
    )
)  # fmt: skip
SYSTEM = ("/sys/devices/system/cpu", "/sys/devices/system/node")
DEVICES = tuple(f"/dev/{name}" for name in ("null", "zero", "full", "random", "urandom", "tty"))
ACCELERATORS = ("/dev/nvidia*", "/dev/dri", "/dev/kfd", "/dev/infiniband")
# Others' sockets and files are there.
SHARED = ("/tmp", "/var/tmp", "/run", "/dev")  # noqa: S108
_LINKS = {"fd": "/proc/self/fd", "stdin": "fd/0", "stdout": "fd/1", "stderr": "fd/2"}
_CLOSED = kernel.ATTR_RDONLY | kernel.ATTR_NOSUID | kernel.ATTR_NODEV
_PLAIN = kernel.MS_NOSUID | kernel.MS_NODEV


# --- level 2: mounts


@dataclass(frozen=True, slots=True)
class _Tree:
    """Copy of a part of the file system, to be attached at `path`."""

    path: str
    descriptor: int
    is_directory: bool

    @classmethod
    def of(cls, source: str, path: str, attributes: int) -> _Tree:
        descriptor = kernel.clone_tree(source)
        if attributes:
            kernel.restrict_mount(descriptor, attributes)
        return cls(path, descriptor, os.path.isdir(source))


def build(cell: Cell) -> None:
    """Make the view of a cell in new user, mount and pid namespaces, and enter it."""
    kernel.mount("none", "/", "", kernel.MS_REC | kernel.MS_PRIVATE)
    trees = list(_trees(cell))
    links = {path: os.readlink(path) for path in PROGRAMS if os.path.islink(path)}
    hidden = [path for path in cell.hidden if _is_seen(path, cell)]
    trees += [_Tree.of("/dev/null", path, 0) for path in hidden if os.path.isfile(path)]
    empty = ["/dev", *(path for path in hidden if os.path.isdir(path))]
    if cell.is_stranger:
        root = cell.folder
        kernel.mount("root", root, "tmpfs", _PLAIN, "size=1m,nr_inodes=2k,mode=755")
    else:
        root = ""
        kernel.restrict_mount("/", _CLOSED)
        empty.append("/run")
    for path, target in links.items() if root else ():
        os.symlink(target, root + path)
    # Parents first; of two for one path, the later one lies on top.
    steps: list[str | _Tree] = [*empty, "/proc", *trees, "/dev/shm"]  # noqa: S108
    for step in sorted(steps, key=_depth):
        if isinstance(step, _Tree):
            _attach(step, root)
        else:
            _mount_new(step, root, cell)
    for path in empty:
        kernel.restrict_mount(root + path, kernel.ATTR_RDONLY, recursive=False)
    if root:
        kernel.restrict_mount(root, kernel.ATTR_RDONLY, recursive=False)
        kernel.change_root(root)


def _trees(cell: Cell) -> Iterator[_Tree]:
    if cell.is_stranger:
        for path in (*PROGRAMS, *SETTINGS, *SYSTEM):
            if os.path.exists(path) and not (path in PROGRAMS and os.path.islink(path)):
                yield _Tree.of(os.path.realpath(path), path, _CLOSED)
    else:
        names = os.path.realpath("/etc/resolv.conf")
        if names.startswith("/run/") and os.path.exists(names):
            yield _Tree.of(names, names, _CLOSED)
    found = [path for pattern in ACCELERATORS for path in glob(pattern)]
    for path in (*DEVICES, *(found if not cell.is_stranger else ())):
        if os.path.exists(path):
            yield _Tree.of(path, path, kernel.ATTR_NOSUID)
    for path in SHARED[:2]:
        yield _Tree.of(cell.tmp, path, _CLOSED & ~kernel.ATTR_RDONLY)
    for path in cell.reads:
        yield _Tree.of(path, path, _CLOSED)
    for path in (*cell.writes, cell.work):
        yield _Tree.of(path, path, _CLOSED & ~kernel.ATTR_RDONLY)


def _is_seen(path: str, cell: Cell) -> bool:
    """True if a path would be visible, were it not hidden."""
    allowed = (*cell.reads, *cell.writes)
    return not cell.is_stranger or any(f"{path}/".startswith(f"{other}/") for other in allowed)


def _depth(step: str | _Tree) -> int:
    return (step if isinstance(step, str) else step.path).count("/")


def _attach(tree: _Tree, root: str) -> None:
    target = root + tree.path
    if not os.path.lexists(target):
        if tree.is_directory:
            os.makedirs(target)
        else:
            os.makedirs(os.path.dirname(target), exist_ok=True)
            os.close(os.open(target, os.O_CREAT | os.O_WRONLY | os.O_CLOEXEC, 0o644))
    kernel.attach(tree.descriptor, target)


def _mount_new(path: str, root: str, cell: Cell) -> None:
    target = root + path
    os.makedirs(target, exist_ok=True)
    if path == "/proc":
        flags = _PLAIN | kernel.MS_NOEXEC | kernel.MS_RDONLY
        kernel.mount("proc", target, "proc", flags)
    elif path == "/dev/shm":  # noqa: S108
        size = f"size={cell.limits.shared_bytes},nr_inodes=4k,mode=1777"
        kernel.mount("shm", target, "tmpfs", _PLAIN, size)
    else:
        kernel.mount("empty", target, "tmpfs", _PLAIN, "size=256k,nr_inodes=1k,mode=755")
    if path == "/dev":
        for name, to in _LINKS.items():
            os.symlink(to, f"{target}/{name}")


# --- Landlock's rules


def rules(cell: Cell, streams: Collection[int]) -> Iterator[tuple[str | int, int]]:
    """Yield places with rights for `landlock.restrict`; `streams` are stdout and stderr."""
    yield from ((stream, landlock.USE) for stream in streams)
    yield cell.work, landlock.WRITE
    for path in cell.writes:
        yield from ((part, landlock.WRITE) for part in around(cell.hidden, path))
    if cell.level >= 2:
        yield "/", landlock.READ
        yield "/dev", landlock.USE
        yield from ((path, landlock.WRITE) for path in ("/tmp", "/var/tmp", "/dev/shm"))  # noqa: S108
        return
    yield from ((path, landlock.USE) for path in DEVICES)
    if cell.is_stranger:
        seen = [*PROGRAMS, *SETTINGS, *SYSTEM, "/proc"]
    else:
        seen = [*around({*cell.hidden, *SHARED}), "/etc/resolv.conf"]
    for path in cell.reads:
        seen += around(cell.hidden, path)
    yield from ((path, landlock.READ) for path in seen)


def around(hidden: Collection[str], top: str = "/") -> list[str]:
    """List paths that together hold all below `top` except some hidden ones.

    Landlock knows no rule that forbids, so everything beside the hidden paths is allowed.  Links
    are left out: what they lead to is allowed for itself, or hidden.
    """
    below = top.rstrip("/") + "/"
    if os.path.islink(top) or any(below.startswith(f"{path}/") for path in hidden):
        return []
    if not any(path.startswith(below) for path in hidden):
        return [top]
    try:
        names = os.listdir(top)
    except OSError:
        return []
    return [path for name in names for path in around(hidden, os.path.join(top, name))]
