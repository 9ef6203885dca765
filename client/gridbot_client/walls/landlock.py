"""Landlock: what a process and its descendants may open, which TCP ports they reach, and whom.

A path or TCP port is allowed only if a rule says so.  Older kernels know fewer rights; `version`
tells which (Documentation/userspace-api/landlock.rst).
"""

from __future__ import annotations

import ctypes
import errno
import functools
import os
import stat
import struct
from collections.abc import Iterable

from gridbot_client.walls import kernel

_EXECUTE, _WRITE_FILE, _READ_FILE, _READ_DIR = 1 << 0, 1 << 1, 1 << 2, 1 << 3
_CHANGE_DIR = sum(1 << bit for bit in (4, 5, 7, 8, 9, 10, 12))  # remove and make; no devices
_MAKE_DEVICES = 1 << 6 | 1 << 11
_REFER, _TRUNCATE, _IOCTL_DEV = 1 << 13, 1 << 14, 1 << 15
_BIND_TCP, _CONNECT_TCP = 1, 2
_SCOPE_ABSTRACT_SOCKETS, _SCOPE_SIGNALS = 1, 2
_VERSION_FLAG, _RULE_PATH = 1, 1

READ = _EXECUTE | _READ_FILE | _READ_DIR
WRITE = READ | _WRITE_FILE | _CHANGE_DIR | _REFER | _TRUNCATE
USE = _READ_FILE | _WRITE_FILE | _TRUNCATE | _IOCTL_DEV  # of a device, or of one file
_OF_FILES = _EXECUTE | _WRITE_FILE | _READ_FILE | _TRUNCATE | _IOCTL_DEV


@functools.cache
def version() -> int:
    """ABI of the kernel's Landlock; 0 without it."""
    try:
        return kernel.syscall("landlock_create_ruleset", None, 0, _VERSION_FLAG)
    except OSError:
        return 0


def has_scopes(abi: int) -> bool:
    """True if signals and abstract sockets can be kept inside."""
    return abi >= 6


def restrict(rules: Iterable[tuple[str | int, int]], abi: int, *, network: bool) -> None:
    """Restrict this process to paths with their rights; without `network`, to no TCP port.

    Paths that do not exist are left out.  Needs no_new_privs.
    """
    known = _known_rights(abi)
    net = 0 if network or abi < 4 else _BIND_TCP | _CONNECT_TCP
    scopes = _SCOPE_ABSTRACT_SOCKETS | _SCOPE_SIGNALS if has_scopes(abi) else 0
    size = 24 if abi >= 6 else 16 if abi >= 4 else 8
    asked = ctypes.create_string_buffer(struct.pack("=QQQ", known, net, scopes)[:size])
    ruleset = kernel.syscall("landlock_create_ruleset", asked, size, 0)
    for place, rights in rules:
        _allow(ruleset, place, rights & known)
    kernel.syscall("landlock_restrict_self", ruleset, 0)
    os.close(ruleset)


def _known_rights(abi: int) -> int:
    rights = READ | _WRITE_FILE | _CHANGE_DIR | _MAKE_DEVICES
    for since, right in ((2, _REFER), (3, _TRUNCATE), (5, _IOCTL_DEV)):
        if abi >= since:
            rights |= right
    return rights


def _allow(ruleset: int, place: str | int, rights: int) -> None:
    try:
        found = os.open(place, os.O_PATH | os.O_CLOEXEC) if isinstance(place, str) else place
    except OSError as error:
        if error.errno in (errno.ENOENT, errno.EACCES, errno.ENOTDIR):
            return
        raise
    try:
        if not stat.S_ISDIR(os.fstat(found).st_mode):
            rights &= _OF_FILES
        rule = ctypes.create_string_buffer(struct.pack("=Qi", rights, found))
        kernel.syscall("landlock_add_rule", ruleset, _RULE_PATH, rule, 0)
    finally:
        if isinstance(place, str):
            os.close(found)
