"""System calls that the standard library lacks.  Each raises OSError, as Python's own do.

Numbers and structures are those of the kernel's headers (include/uapi); they never change.
"""

from __future__ import annotations

import ctypes
import fcntl
import functools
import os
import socket
import struct
from contextlib import suppress

# x86_64, aarch64; None: the architecture has no such call.
SYSCALLS: dict[str, tuple[int | None, int | None]] = {
    "acct": (163, 89),
    "add_key": (248, 217),
    "adjtimex": (159, 171),
    "bpf": (321, 280),
    "capset": (126, 91),
    "chmod": (90, None),
    "chown": (92, None),
    "chroot": (161, 51),
    "clock_adjtime": (305, 266),
    "clock_settime": (227, 112),
    "clone": (56, 220),
    "clone3": (435, 435),
    "connect": (42, 203),
    "delete_module": (176, 106),
    "fanotify_init": (300, 262),
    "fchmod": (91, 52),
    "fchmodat": (268, 53),
    "fchmodat2": (452, 452),
    "fchown": (93, 55),
    "fchownat": (260, 54),
    "fcntl": (72, 25),
    "file_setattr": (469, 469),
    "finit_module": (313, 273),
    "fremovexattr": (199, 16),
    "fsconfig": (431, 431),
    "fsetxattr": (190, 7),
    "fsmount": (432, 432),
    "fsopen": (430, 430),
    "fspick": (433, 433),
    "futimesat": (261, None),
    "init_module": (175, 105),
    "inotify_init": (253, None),
    "inotify_init1": (294, 26),
    "io_setup": (206, 0),
    "io_uring_enter": (426, 426),
    "io_uring_register": (427, 427),
    "io_uring_setup": (425, 425),
    "ioctl": (16, 29),
    "ioperm": (173, None),
    "iopl": (172, None),
    "ioprio_set": (251, 30),
    "kcmp": (312, 272),
    "kexec_file_load": (320, 294),
    "kexec_load": (246, 104),
    "keyctl": (250, 219),
    "kill": (62, 129),
    "landlock_add_rule": (445, 445),
    "landlock_create_ruleset": (444, 444),
    "landlock_restrict_self": (446, 446),
    "lchown": (94, None),
    "lookup_dcookie": (212, 18),
    "lremovexattr": (198, 15),
    "lsetxattr": (189, 6),
    "memfd_create": (319, 279),
    "memfd_secret": (447, 447),
    "migrate_pages": (256, 238),
    "mmap": (9, 222),
    "modify_ldt": (154, None),
    "mount": (165, 40),
    "mount_setattr": (442, 442),
    "move_mount": (429, 429),
    "move_pages": (279, 239),
    "mq_open": (240, 180),
    "mq_unlink": (241, 181),
    "msgctl": (71, 187),
    "msgget": (68, 186),
    "msgrcv": (70, 188),
    "msgsnd": (69, 189),
    "name_to_handle_at": (303, 264),
    "open_by_handle_at": (304, 265),
    "open_tree": (428, 428),
    "open_tree_attr": (467, 467),
    "perf_event_open": (298, 241),
    "personality": (135, 92),
    "pidfd_getfd": (438, 438),
    "pidfd_send_signal": (424, 424),
    "pivot_root": (155, 41),
    "prctl": (157, 167),
    "prlimit64": (302, 261),
    "process_madvise": (440, 440),
    "process_mrelease": (448, 448),
    "process_vm_readv": (310, 270),
    "process_vm_writev": (311, 271),
    "ptrace": (101, 117),
    "quotactl": (179, 60),
    "quotactl_fd": (443, 443),
    "reboot": (169, 142),
    "removexattr": (197, 14),
    "removexattrat": (466, 466),
    "request_key": (249, 218),
    "rt_sigqueueinfo": (129, 138),
    "rt_tgsigqueueinfo": (297, 240),
    "sched_setaffinity": (203, 122),
    "sched_setattr": (314, 274),
    "sched_setparam": (142, 118),
    "sched_setscheduler": (144, 119),
    "seccomp": (317, 277),
    "semctl": (66, 191),
    "semget": (64, 190),
    "semop": (65, 193),
    "semtimedop": (220, 192),
    "setdomainname": (171, 162),
    "sethostname": (170, 161),
    "setns": (308, 268),
    "setpriority": (141, 140),
    "settimeofday": (164, 170),
    "setxattr": (188, 5),
    "setxattrat": (463, 463),
    "shmat": (30, 196),
    "shmctl": (31, 195),
    "shmdt": (67, 197),
    "shmget": (29, 194),
    "socket": (41, 198),
    "socketpair": (53, 199),
    "swapoff": (168, 225),
    "swapon": (167, 224),
    "sync": (162, 81),
    "syncfs": (306, 267),
    "syslog": (103, 116),
    "tgkill": (234, 131),
    "tkill": (200, 130),
    "truncate": (76, 45),
    "umount2": (166, 39),
    "unshare": (272, 97),
    "uselib": (134, None),
    "userfaultfd": (323, 282),
    "utime": (132, None),
    "utimes": (235, None),
    "vhangup": (153, 58),
    "vmsplice": (278, 75),
}
MACHINES = ("x86_64", "aarch64")

CLONE_NEWNS, CLONE_NEWUTS, CLONE_NEWIPC = 0x20000, 0x4000000, 0x8000000
CLONE_NEWUSER, CLONE_NEWPID, CLONE_NEWNET = 0x10000000, 0x20000000, 0x40000000
CLONE_NEWCGROUP, CLONE_NEWTIME = 0x2000000, 0x80
SIGCHLD = 17

MS_NOSUID, MS_NODEV, MS_NOEXEC, MS_RDONLY = 2, 4, 8, 1
MS_BIND, MS_REC, MS_PRIVATE = 0x1000, 0x4000, 1 << 18
MNT_DETACH = 2
ATTR_RDONLY, ATTR_NOSUID, ATTR_NODEV = 1, 2, 4

PR_SET_PDEATHSIG, PR_SET_DUMPABLE, PR_SET_SECCOMP = 1, 4, 22
PR_SET_SECUREBITS, PR_SET_NO_NEW_PRIVS, PR_SET_CHILD_SUBREAPER = 28, 38, 36

_AT_FDCWD, _AT_EMPTY_PATH, _AT_RECURSIVE = -100, 0x1000, 0x8000
_OPEN_TREE_CLONE, _OPEN_TREE_CLOEXEC = 1, 0o2000000
_MOVE_MOUNT_F_EMPTY_PATH = 4
_SIOCSIFFLAGS, _IFF_UP, _IFF_RUNNING = 0x8914, 1, 0x40
_RAISED_LOOPBACK = struct.pack("16sH14x", b"lo", _IFF_UP | _IFF_RUNNING)
# Root gains no capability by an exec, keeps none over a change of its id, and passes none on; for
# good: NOROOT, KEEP_CAPS_LOCKED, NO_CAP_AMBIENT_RAISE (linux/securebits.h).
_SECURE_BITS = 0xE3
_CAPABILITY_VERSION = 0x20080522

# Keeps the GIL, so that a process made by `clone` goes on in a sound interpreter.
_libc = ctypes.PyDLL(None, use_errno=True)
_libc.syscall.restype = ctypes.c_long
_BIND_ALL = ctypes.c_ulong(MS_BIND | MS_REC)


@functools.cache
def machine() -> str:
    """Architecture of this process, one of MACHINES.  Raises OSError for others."""
    found = os.uname().machine
    if found not in MACHINES or struct.calcsize("P") != 8:
        raise OSError(f"no walls for processes of {found}")
    return found


@functools.cache
def number(name: str) -> int | None:
    """Number of a system call on this machine; None if it does not exist here."""
    return SYSCALLS[name][MACHINES.index(machine())]


def syscall(name: str, *arguments: int | bytes | ctypes.Array[ctypes.c_char] | None) -> int:
    """Make a system call; pointers are bytes or buffers."""
    values = [
        ctypes.c_long(argument) if isinstance(argument, int) else argument for argument in arguments
    ]
    result: int = _libc.syscall(ctypes.c_long(number(name) or -1), *values)
    return _checked(result, name)


def clone(flags: int) -> int:
    """Fork into new namespaces; 0 in the child.  Only for a process with a single thread."""
    return syscall("clone", flags | SIGCHLD, 0, 0, 0, 0)


def prctl(option: int, *arguments: int) -> None:
    """prctl(2) with numbers."""
    rest = [ctypes.c_ulong(argument) for argument in (*arguments, 0, 0, 0, 0)[:4]]
    _checked(_libc.prctl(option, *rest), "prctl")


def mount(source: str, target: str, kind: str, flags: int, data: str = "") -> None:
    """mount(2)."""
    names = (os.fsencode(source), os.fsencode(target), kind.encode())
    done = _libc.mount(*names, ctypes.c_ulong(flags), data.encode())
    _checked(done, "mount", target)


def bind(source: str, target: str) -> None:
    """Show a part of the file system, with all mounts below it, at another place, too."""
    names = (os.fsencode(source), os.fsencode(target))
    _checked(_libc.mount(*names, None, _BIND_ALL, None), "bind", target)


def unmount(target: str) -> None:
    """Detach a mount."""
    _checked(_libc.umount2(os.fsencode(target), MNT_DETACH), "umount", target)


def clone_tree(path: str) -> int:
    """Copy of the mounts at and below a path, attached to nothing; a descriptor."""
    flags = _OPEN_TREE_CLONE | _OPEN_TREE_CLOEXEC | _AT_RECURSIVE
    return syscall("open_tree", _AT_FDCWD, os.fsencode(path), flags)


def attach(tree: int, target: str) -> None:
    """Attach what `clone_tree` copied, and close the descriptor."""
    syscall("move_mount", tree, b"", _AT_FDCWD, os.fsencode(target), _MOVE_MOUNT_F_EMPTY_PATH)
    os.close(tree)


def restrict_mount(
    where: str | int, attributes: int, *, lifted: int = 0, recursive: bool = True
) -> None:
    """Add attributes to a mount, given by path or descriptor, and to those below it; lift some."""
    asked = ctypes.create_string_buffer(struct.pack("=QQQQ", attributes, lifted, 0, 0))
    flags = _AT_RECURSIVE if recursive else 0
    if isinstance(where, int):
        syscall("mount_setattr", where, b"", flags | _AT_EMPTY_PATH, asked, 32)
    else:
        syscall("mount_setattr", _AT_FDCWD, os.fsencode(where), flags, asked, 32)


def change_root(path: str) -> None:
    """Make a mount the root directory, and let go of the old one."""
    os.chdir(path)
    syscall("pivot_root", b".", b".")
    unmount(".")
    os.chdir("/")


def raise_loopback() -> None:
    """Bring up the loopback interface of a new network namespace."""
    any_socket = syscall("socket", int(socket.AF_INET), int(socket.SOCK_DGRAM), 0)
    try:
        fcntl.ioctl(any_socket, _SIOCSIFFLAGS, _RAISED_LOOPBACK)
    finally:
        os.close(any_socket)


def forbid_capabilities() -> None:
    """Give up the right to gain a capability by being root.  Needs the capability to do so.

    What files grant, no_new_privs forbids.
    """
    with suppress(PermissionError):  # then this process has none
        prctl(PR_SET_SECUREBITS, _SECURE_BITS)


def drop_capabilities() -> None:
    """Give up all capabilities."""
    header = ctypes.create_string_buffer(struct.pack("=II", _CAPABILITY_VERSION, 0))
    syscall("capset", header, ctypes.create_string_buffer(24))


def _checked(result: int, *what: str) -> int:
    if result == -1:
        error = ctypes.get_errno()
        raise OSError(error, f"{' '.join(what)}: {os.strerror(error)}")
    return result
