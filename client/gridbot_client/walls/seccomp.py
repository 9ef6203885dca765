"""The filter on system calls: a BPF program that refuses what no task needs.

Refused is what reaches other processes, the kernel's rarely used and often broken corners, and
what would build namespaces, in which these get larger.  Everything else is allowed, because
libraries need new calls with each version, and the walls do not rest on the filter alone.
"""

from __future__ import annotations

import ctypes
import errno
import functools
import socket
import struct
from collections.abc import Sequence

from gridbot_client.walls import kernel

_ARCHITECTURES = {"x86_64": 0xC000003E, "aarch64": 0xC00000B7}  # AUDIT_ARCH_*
_X32_BIT = 0x40000000
_LOAD, _EQUAL, _AT_LEAST, _ANY_BIT, _JUMP, _RETURN = 0x20, 0x15, 0x35, 0x45, 0x05, 0x06
_ALLOW, _KILL, _ERROR = 0x7FFF0000, 0x80000000, 0x00050000
_NUMBER, _ARCHITECTURE, _ARGUMENTS = 0, 4, 16  # offsets in struct seccomp_data
_SECCOMP_MODE_FILTER = 2

_NEW_NAMESPACE = (
    kernel.CLONE_NEWNS | kernel.CLONE_NEWUTS | kernel.CLONE_NEWIPC | kernel.CLONE_NEWUSER
    | kernel.CLONE_NEWPID | kernel.CLONE_NEWNET | kernel.CLONE_NEWCGROUP
)  # fmt: skip
_TERMINAL_INJECTION = (0x5412, 0x541C)  # TIOCSTI, TIOCLINUX
_NETLINK_ROUTE = 0
_UNUSUAL_TYPES = 12  # bits of all but streams, datagrams and raw sockets
_F_SETLEASE, _F_NOTIFY, _F_SETPIPE_SZ = 1024, 1026, 1031
_MAP_HUGETLB, _MFD_HUGETLB = 0x40000, 4
# SUBVOL_CREATE, SNAP_CREATE and their second versions, SUBVOL_SETFLAGS (linux/btrfs.h): they make
# trees that cannot be removed as others are, and keep what others delete.
_OF_BTRFS = (0x5000940E, 0x50009418, 0x50009401, 0x50009417, 0x4008941A)
_REFUSED_FCNTL = (_F_SETLEASE, _F_NOTIFY, _F_SETPIPE_SZ)
_PR_SCHED_CORE = 62
_REFUSED_PRCTL = (kernel.PR_SET_DUMPABLE, _PR_SCHED_CORE)

# Refused at every level.
_NEVER = (
    # other processes
    "ptrace", "process_vm_readv", "process_vm_writev", "process_madvise", "process_mrelease",
    "kcmp", "pidfd_getfd", "migrate_pages", "move_pages",
    # the kernel
    "bpf", "perf_event_open", "userfaultfd", "io_uring_setup", "io_uring_enter",
    "io_uring_register", "add_key", "request_key", "keyctl", "init_module", "finit_module",
    "delete_module", "kexec_load", "kexec_file_load", "modify_ldt", "lookup_dcookie", "syslog",
    "fanotify_init", "inotify_init", "inotify_init1", "uselib", "memfd_secret", "vmsplice",
    # of which the whole machine has few
    "io_setup",
    # what makes all others wait for the disks
    "sync", "syncfs",
    # mounts and namespaces
    "mount", "umount2", "pivot_root", "chroot", "open_tree", "open_tree_attr", "move_mount",
    "fsopen", "fsconfig", "fsmount", "fspick", "mount_setattr", "setns", "unshare",
    "open_by_handle_at", "name_to_handle_at",
    # the machine
    "acct", "adjtimex", "clock_adjtime", "clock_settime", "settimeofday", "sethostname",
    "setdomainname", "ioperm", "iopl", "quotactl", "quotactl_fd", "reboot", "swapon", "swapoff",
    "vhangup",
    # memory that outlives its process and counts as nobody's
    "shmget", "shmat", "shmctl", "shmdt", "semget", "semop", "semctl", "semtimedop", "msgget",
    "msgsnd", "msgrcv", "msgctl", "mq_open", "mq_unlink",
)  # fmt: skip
# Without a mount namespace: what changes a file that may only be read, and Landlock does not see.
_OF_READ_ONLY = (
    "chmod", "fchmod", "fchmodat", "fchmodat2", "chown", "fchown", "lchown", "fchownat", "setxattr",
    "fsetxattr", "lsetxattr", "setxattrat", "removexattr", "fremovexattr", "lremovexattr",
    "removexattrat", "utime", "utimes", "futimesat", "file_setattr",
)  # fmt: skip
# SETFLAGS, FSSETXATTR, ENABLE_VERITY, SET_ENCRYPTION_POLICY (linux/fs.h and others).
_IOCTL_OF_READ_ONLY = (0x40086602, 0x401C5820, 0x40806685, 0x800C6613)
# What acts on another process of the same user, at levels without a pid namespace; these name
# their own process by 0.
_BY_PID = (
    ("sched_setaffinity", 0), ("sched_setattr", 0), ("sched_setparam", 0),
    ("sched_setscheduler", 0), ("setpriority", 1), ("ioprio_set", 1),
)  # fmt: skip
# In a pid namespace only the first process is not the task's: process 1, and of the same user.
_FIRST, _PRIO_USER, _IOPRIO_WHO_USER = 1, 2, 3
_BY_USER = (("setpriority", _PRIO_USER), ("ioprio_set", _IOPRIO_WHO_USER))
_SIGNALS = ("tkill", "tgkill", "rt_sigqueueinfo", "rt_tgsigqueueinfo", "pidfd_send_signal")

_INSTRUCTION = "=HBBI"
Instruction = tuple[int, int, int, int]  # code, jump if true, jump if false, constant
_Filter = tuple[int | None, list[Instruction]]  # of the call of a number; None: there is none here
_LEAF = 4  # filters that are tried one after the other


@functools.lru_cache
def program(families: tuple[int, ...], *, namespaces: bool, stranger: bool, landlock: int) -> bytes:
    """Text of the filter for a task that may make sockets of some address families.

    `namespaces` says that the task has its own; `landlock` is the ABI of the kernel's Landlock,
    which rules what the filter need not.
    """
    filters = [_refuse(name) for name in _NEVER]
    filters += [
        _when("clone", 0, [(_ANY_BIT, _NEW_NAMESPACE)], errno.EPERM),
        # Its flags are in memory, which a filter cannot read; libc then uses clone.
        _refuse("clone3", errno.ENOSYS),
        _when("ioctl", 1, [(_EQUAL, at) for at in (*_TERMINAL_INJECTION, *_OF_BTRFS)], errno.EPERM),
        # Others would wait for a file that they open; what they do in a folder is theirs; a user's
        # pipes have few pages in all.
        _when("fcntl", 1, [(_EQUAL, command) for command in _REFUSED_FCNTL], errno.EPERM),
        # Rules are memory of the kernel's that counts as nobody's; programs can do without.
        _refuse("landlock_create_ruleset", errno.ENOSYS),
        # The client must be able to look at what it counts; a core is not one task's.
        _when("prctl", 0, [(_EQUAL, op) for op in _REFUSED_PRCTL], errno.EPERM),
        _only("prlimit64", 0, [0], errno.EPERM),
        _only("socket", 0, families, errno.EAFNOSUPPORT),
        _only("socketpair", 0, [int(socket.AF_UNIX)], errno.EAFNOSUPPORT),
        *_only_usual_protocols(),
    ]
    if stranger:  # huge pages were set aside for somebody, and count as no process's
        filters.append(_when("mmap", 3, [(_ANY_BIT, _MAP_HUGETLB)], errno.ENOMEM))
        filters.append(_when("memfd_create", 1, [(_ANY_BIT, _MFD_HUGETLB)], errno.ENOSYS))
    if namespaces:
        filters += [_when(name, at, [(_EQUAL, _FIRST)], errno.EPERM) for name, at in _BY_PID]
        filters += [_when(name, 0, [(_EQUAL, of)], errno.EPERM) for name, of in _BY_USER]
    else:
        filters += [_only(name, at, [0], errno.EPERM) for name, at in _BY_PID]
        if stranger:
            filters += [_refuse(name) for name in _OF_READ_ONLY]
            filters.append(
                _when("ioctl", 1, [(_EQUAL, code) for code in _IOCTL_OF_READ_ONLY], errno.EPERM)
            )
        if landlock < 3:
            filters.append(_refuse("truncate"))
        if landlock < 6:
            filters += [_only("kill", 0, [0], errno.EPERM), *map(_refuse, _SIGNALS)]
    found = [
        (_LOAD, 0, 0, _ARCHITECTURE),
        (_EQUAL, 1, 0, _ARCHITECTURES[kernel.machine()]),
        (_RETURN, 0, 0, _KILL),
        (_LOAD, 0, 0, _NUMBER),
        (_AT_LEAST, 0, 1, _X32_BIT),
        (_RETURN, 0, 0, _ERROR | errno.EPERM),
        *_search(_by_number(filters)),
    ]
    return b"".join(struct.pack(_INSTRUCTION, *line) for line in found)


def _by_number(filters: Sequence[_Filter]) -> list[_Filter]:
    """One filter for each system call, in order of their numbers."""
    found: dict[int, list[Instruction]] = {}
    for number, lines in filters:
        if number is not None:
            found.setdefault(number, []).extend(lines)
    return sorted(found.items())


def _search(filters: Sequence[_Filter]) -> list[Instruction]:
    """Find a call's filter by halves.

    The kernel runs a filter once for each call that there is when it is installed, to learn which
    ones it always allows.  One after the other, that cost 0.3 ms.
    """
    if len(filters) <= _LEAF:
        found: list[Instruction] = []
        for number, lines in filters:
            found += [(_EQUAL, 0, len(lines), number or 0), *lines]
        return [*found, (_RETURN, 0, 0, _ALLOW)]
    half = len(filters) // 2
    below = _search(filters[:half])
    pivot = filters[half][0] or 0
    return [
        (_AT_LEAST, 0, 1, pivot),
        (_JUMP, 0, 0, len(below)),
        *below,
        *_search(filters[half:]),
    ]


def install(program: bytes) -> None:
    """Put this process and its descendants under the filter.  Needs no_new_privs."""
    text = ctypes.create_string_buffer(program)
    count = len(program) // struct.calcsize(_INSTRUCTION)
    header = ctypes.create_string_buffer(struct.pack("=H6xQ", count, ctypes.addressof(text)))
    kernel.prctl(kernel.PR_SET_SECCOMP, _SECCOMP_MODE_FILTER, ctypes.addressof(header))


def families(*, inet: bool, unix: bool) -> tuple[int, ...]:
    """Address families of a task's sockets; AF_NETLINK lists the interfaces."""
    found = [socket.AF_UNIX] if unix else []
    if inet:
        found += [socket.AF_INET, socket.AF_INET6, socket.AF_NETLINK]
    return tuple(map(int, found))


def _refuse(name: str, error: int = errno.EPERM) -> _Filter:
    return kernel.number(name), [(_RETURN, 0, 0, _ERROR | error)]


def _when(name: str, argument: int, tests: Sequence[tuple[int, int]], error: int) -> _Filter:
    """Refuse a call if its argument's lower half passes one of the tests."""
    inner = [(_LOAD, 0, 0, _ARGUMENTS + 8 * argument)]
    for code, constant in tests:
        inner += [(code, 0, 1, constant), (_RETURN, 0, 0, _ERROR | error)]
    return kernel.number(name), [*inner, (_LOAD, 0, 0, _NUMBER)]


def _only(name: str, argument: int, allowed: Sequence[int], error: int) -> _Filter:
    """Refuse a call unless its argument is one of some numbers."""
    inner = [(_LOAD, 0, 0, _ARGUMENTS + 8 * argument)]
    for place, constant in enumerate(allowed):
        inner.append((_EQUAL, len(allowed) - place, 0, constant))
    inner.append((_RETURN, 0, 0, _ERROR | error))
    return kernel.number(name), [*inner, (_LOAD, 0, 0, _NUMBER)]


def _only_usual_protocols() -> list[_Filter]:
    """Refuse protocols by which the kernel loads what hardly anybody uses, but can break."""
    of_inet = (0, *map(int, (socket.IPPROTO_TCP, socket.IPPROTO_UDP, socket.IPPROTO_ICMP)))
    return [
        _only_protocols(socket.AF_NETLINK, (_NETLINK_ROUTE,)),
        _only_protocols(socket.AF_INET, of_inet),
        _only_protocols(socket.AF_INET6, (*of_inet, int(socket.IPPROTO_ICMPV6))),
    ]


def _only_protocols(family: int, allowed: Sequence[int]) -> _Filter:
    """Refuse sockets of a family unless their protocol is one of some numbers."""
    number, inner = _only("socket", 2, allowed, errno.EPROTONOSUPPORT)
    rules = [
        (_LOAD, 0, 0, _ARGUMENTS + 8),
        (_ANY_BIT, 0, 1, _UNUSUAL_TYPES),
        (_RETURN, 0, 0, _ERROR | errno.ESOCKTNOSUPPORT),
        *inner,
    ]
    return number, [(_LOAD, 0, 0, _ARGUMENTS), (_EQUAL, 0, len(rules) - 1, int(family)), *rules]
