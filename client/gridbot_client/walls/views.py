"""What a task sees of the file system: mounts at level 2, Landlock's rules at all levels.

A stranger sees the system's programs and libraries.  One's own work sees everything, but neither
the client's folder nor well-known places of keys, nor places where other programs listen.  Both
write only into their slot, and where the machine's owner lets them.

At level 2 the view is made of mounts, in this order: copies of all mounts that will be needed are
taken while the old tree is whole; everything becomes read-only; then copies and new file systems
are attached, parents before children.  Paths below another's mount are thus made inside it.
"""

from __future__ import annotations

import functools
import os
from collections.abc import Collection, Iterable, Iterator
from typing import NamedTuple

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
ACCELERATORS = ("/dev/dri", "/dev/kfd", "/dev/infiniband")  # and those of NVIDIA
# Others' sockets and files are there.
SHARED = ("/tmp", "/var/tmp", "/run", "/dev")  # noqa: S108
_LINKS = {"fd": "/proc/self/fd", "stdin": "fd/0", "stdout": "fd/1", "stderr": "fd/2"}
_CLOSED = kernel.ATTR_RDONLY | kernel.ATTR_NOSUID | kernel.ATTR_NODEV
_PLAIN = kernel.MS_NOSUID | kernel.MS_NODEV


# --- level 2: mounts


class _Source(NamedTuple):
    """Part of the file system that is to be seen at `path`."""

    real: str
    path: str
    is_directory: bool
    attributes: int = _CLOSED


class _Tree(NamedTuple):
    """Copy of the mounts of a part of the file system, to be attached at `path`."""

    path: str
    descriptor: int
    is_directory: bool


class _System(NamedTuple):
    """What a task sees of the system itself."""

    folders: tuple[str, ...]  # of a stranger's root, parents first
    files: tuple[str, ...]  # mount points in it
    links: tuple[tuple[str, str], ...]  # in it: path, target
    programs: tuple[tuple[str, str], ...]  # bound in it: source, path
    devices: tuple[_Source, ...]
    accelerators: tuple[_Source, ...]
    names: tuple[_Source, ...]  # of one's own: what /etc/resolv.conf leads to


@functools.cache
def system() -> _System:
    """What there is, looked up once: it hardly changes while a client runs."""
    links = [(path, os.readlink(path)) for path in PROGRAMS if os.path.islink(path)]
    names = {path for path, _ in links}
    seen = [
        _source(path)
        for path in (*PROGRAMS, *SETTINGS, *SYSTEM)
        if path not in names and os.path.exists(path)
    ]
    devices = tuple(_source(path, 0) for path in DEVICES if os.path.exists(path))
    resolver = os.path.realpath("/etc/resolv.conf")
    is_below_run = resolver.startswith("/run/") and os.path.exists(resolver)
    return _System(
        tuple(_folders(seen)),
        tuple(source.path for source in seen if not source.is_directory),
        tuple(links),
        tuple((source.real, source.path) for source in seen),
        devices,
        tuple(_source(path, 0) for path in _accelerators()),
        (_source(resolver),) if is_below_run else (),
    )


def _folders(seen: Iterable[_Source]) -> list[str]:
    """Folders of a stranger's root, parents first."""
    found = {"/dev"}
    for source in seen:
        path = source.path if source.is_directory else os.path.dirname(source.path)
        while path != "/":
            found.add(path)
            path = os.path.dirname(path)
    return sorted(found)


def _accelerators() -> list[str]:
    found = [path for path in ACCELERATORS if os.path.exists(path)]
    return found + [f"/dev/{name}" for name in os.listdir("/dev") if name.startswith("nvidia")]


def _source(path: str, attributes: int = _CLOSED) -> _Source:
    real = os.path.realpath(path)
    return _Source(real, path, os.path.isdir(real), attributes)


def build(cell: Cell) -> None:
    """Make the view of a cell in new user, mount and pid namespaces, and enter it."""
    kernel.mount("none", "/", "", kernel.MS_REC | kernel.MS_PRIVATE)
    hidden = visible_secrets(cell.hidden, cell.reads + cell.writes, cell.is_stranger)
    covers = [path for path in hidden if os.path.isfile(path)]
    empty = [path for path in hidden if os.path.isdir(path)]
    trees = [_copy(source) for source in _sources(cell)]
    trees += [_copy(_Source("/dev/null", path, False, 0)) for path in covers]
    if cell.is_stranger:
        root = cell.folder
        kernel.mount("root", root, "tmpfs", _PLAIN, "size=1m,nr_inodes=2k,mode=755")
        _show_system(root)
    else:
        root = ""
        kernel.restrict_mount("/", _CLOSED)
        empty += ("/dev", "/run")
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


def _show_system(root: str) -> None:
    """Show a stranger the system; binds are cheaper than copies, where nothing covers the way."""
    found = system()
    for path in found.folders:
        os.mkdir(root + path)
    for path in found.files:
        os.mknod(root + path)
    for path, target in found.links:
        os.symlink(target, root + path)
    for source, path in found.programs:
        kernel.bind(source, root + path)
    kernel.restrict_mount(root, _CLOSED)
    # The root itself still gets mount points.
    kernel.restrict_mount(root, 0, lifted=kernel.ATTR_RDONLY, recursive=False)
    for device in found.devices:
        os.mknod(root + device.path)
        kernel.bind(device.real, root + device.path)
    _link_streams(root)


def _link_streams(root: str) -> None:
    for name, to in _LINKS.items():
        os.symlink(to, f"{root}/dev/{name}")


def _sources(cell: Cell) -> Iterator[_Source]:
    found = system()
    if not cell.is_stranger:
        yield from (*found.names, *found.accelerators, *found.devices)
    open_ = _CLOSED & ~kernel.ATTR_RDONLY
    yield from (_Source(cell.tmp, path, True, open_) for path in SHARED[:2])
    yield from (_Source(path, path, os.path.isdir(path)) for path in cell.reads)
    yield from (_Source(path, path, os.path.isdir(path), open_) for path in cell.writes)
    yield _Source(cell.work, cell.work, True, open_)
    for folder, path, is_writable in cell.shown:
        yield _Source(folder, path, True, open_ if is_writable else _CLOSED)


def _copy(source: _Source) -> _Tree:
    descriptor = kernel.clone_tree(source.real)
    if source.attributes:
        kernel.restrict_mount(descriptor, source.attributes)
    return _Tree(source.path, descriptor, source.is_directory)


@functools.lru_cache
def visible_secrets(
    hidden: tuple[str, ...], allowed: tuple[str, ...], is_stranger: bool
) -> tuple[str, ...]:
    """Paths that are to be hidden and would be seen, were nothing done about it."""
    if not is_stranger:
        return hidden
    # Its own /tmp is writable: a place below it, which holds the slot, is to be closed like others.
    above = tuple(f"{path}/" for path in (*SHARED[:2], *allowed))
    return tuple(path for path in hidden if f"{path}/".startswith(above))


def _depth(step: str | _Tree) -> int:
    return (step if isinstance(step, str) else step.path).count("/")


def _attach(tree: _Tree, root: str) -> None:
    target = root + tree.path
    if not os.access(target, os.F_OK):
        _make(target, tree.is_directory)
    kernel.attach(tree.descriptor, target)


def _make(target: str, is_directory: bool) -> None:
    """Make a mount point."""
    make = os.mkdir if is_directory else os.mknod
    try:
        make(target)
    except FileNotFoundError:
        os.makedirs(os.path.dirname(target))
        make(target)


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
        _link_streams(root)


# --- Landlock's rules


def rules(cell: Cell, streams: Collection[int]) -> Iterator[tuple[str | int, int]]:
    """Yield places with rights for `landlock.restrict`; `streams` are stdout and stderr."""
    yield from ((stream, landlock.USE) for stream in streams)
    yield cell.work, landlock.WRITE
    for path in cell.writes:
        yield from ((part, landlock.WRITE) for part in around(cell.hidden, path))
    for folder, path, is_writable in cell.shown:
        place = path if cell.level >= 2 else folder
        yield place, landlock.WRITE if is_writable else landlock.READ
    if cell.level >= 2:
        yield "/", landlock.READ
        yield "/dev", landlock.USE
        # /var/tmp is the same directory as /tmp.
        yield from ((path, landlock.WRITE) for path in ("/tmp", "/dev/shm"))  # noqa: S108
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
