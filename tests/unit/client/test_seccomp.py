"""The filter on system calls, read as the kernel reads it, for both architectures."""

from __future__ import annotations

import errno
import os
import struct
from collections.abc import Iterator

import pytest

from gridbot_client.walls import kernel, seccomp

AUDIT = {"x86_64": 0xC000003E, "aarch64": 0xC00000B7}
ALLOW, KILL = 0x7FFF0000, 0x80000000
REFUSED = 0x00050000 | errno.EPERM


@pytest.fixture(params=kernel.MACHINES)
def machine(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """An architecture, as the kernel would name it."""
    names = list(os.uname())
    monkeypatch.setattr(os, "uname", lambda: os.uname_result([*names[:4], request.param]))
    for cached in (kernel.machine, kernel.number, seccomp.program):
        cached.cache_clear()
    yield request.param
    for cached in (kernel.machine, kernel.number, seccomp.program):
        cached.cache_clear()


def verdict(program: bytes, audit: int, number: int, *arguments: int) -> int:
    """What the filter says of a call (Documentation/userspace-api/seccomp_filter.rst)."""
    six = [*arguments, 0, 0, 0, 0, 0, 0][:6]
    data = struct.pack("=IIQ6Q", number, audit, 0, *six)
    lines = [*struct.iter_unpack("=HBBI", program)]
    at = value = 0
    while True:
        code, jump_if, jump_else, constant = lines[at]
        at += 1
        if code == 0x20:
            value = struct.unpack_from("=I", data, constant)[0]
        elif code == 0x05:
            at += constant
        elif code == 0x06:
            return int(constant)
        else:
            tests = {0x15: value == constant, 0x35: value >= constant, 0x45: value & constant}
            at += jump_if if tests[code] else jump_else


@pytest.mark.parametrize("namespaces", [True, False])
def test_what_no_task_needs_is_refused_by_the_numbers_of_each_architecture(
    machine: str, namespaces: bool
) -> None:
    program = seccomp.program((1, 2), namespaces=namespaces, stranger=True, landlock=7)

    def said(name: str, *arguments: int) -> int:
        number = kernel.SYSCALLS[name][kernel.MACHINES.index(machine)]
        return REFUSED if number is None else verdict(program, AUDIT[machine], number, *arguments)

    for name in ("ptrace", "bpf", "io_uring_setup", "io_setup", "keyctl", "mount", "setns", "sync"):
        assert said(name) == REFUSED, name
    assert said("clone", kernel.CLONE_NEWUSER | 17) == REFUSED
    assert said("clone", 17) == ALLOW
    assert said("fcntl", 3, 1024) == REFUSED
    assert said("fcntl", 3, 1) == ALLOW
    assert said("fcntl", 3, 1031) == REFUSED  # the size of a pipe
    assert said("ioctl", 3, 0x5000940E) == REFUSED  # a subvolume
    assert said("ioctl", 3, 0x40086602) == (ALLOW if namespaces else REFUSED)  # chattr
    assert said("ioctl", 3, 0x5413) == ALLOW
    assert said("socketpair", 1) == ALLOW
    assert said("socketpair", 30) == 0x00050000 | errno.EAFNOSUPPORT
    assert said("mmap", 0, 4096, 3, 0x40022) == 0x00050000 | errno.ENOMEM  # huge pages
    assert said("mmap", 0, 4096, 3, 0x22) == ALLOW
    assert said("memfd_create", 0, 4) == 0x00050000 | errno.ENOSYS
    assert said("memfd_create", 0, 1) == ALLOW
    assert said("socket", 2) == ALLOW
    assert said("socket", 17) == 0x00050000 | errno.EAFNOSUPPORT
    assert said("fchmod") == (ALLOW if namespaces else REFUSED)
    read = {"x86_64": 0, "aarch64": 63}[machine]
    assert verdict(program, AUDIT[machine], read) == ALLOW


@pytest.mark.parametrize(
    ("family", "kind", "protocol", "error"),
    [
        (1, 5, 0, 0),  # AF_UNIX, SOCK_SEQPACKET
        (2, 1 | 0x80800, 6, 0),  # AF_INET, SOCK_STREAM with flags, TCP
        (10, 2, 58, 0),  # AF_INET6, SOCK_DGRAM, ICMPv6
        (16, 3, 0, 0),  # AF_NETLINK, routes
        (16, 3, 9, errno.EPROTONOSUPPORT),  # audit
        (2, 1, 132, errno.EPROTONOSUPPORT),  # SCTP
        (2, 6, 0, errno.ESOCKTNOSUPPORT),  # DCCP
        (10, 5, 0, errno.ESOCKTNOSUPPORT),
        (17, 3, 0, errno.EAFNOSUPPORT),  # packets
    ],
)
def test_a_task_makes_sockets_of_the_usual_kinds_only(
    machine: str, family: int, kind: int, protocol: int, error: int
) -> None:
    families = seccomp.families(inet=True, unix=True)
    program = seccomp.program(families, namespaces=True, stranger=True, landlock=7)
    number = kernel.SYSCALLS["socket"][kernel.MACHINES.index(machine)]
    said = verdict(program, AUDIT[machine], number or 0, family, kind, protocol)
    assert said == (0x00050000 | error if error else ALLOW)


def test_a_call_of_another_architecture_ends_the_task(machine: str) -> None:
    program = seccomp.program((1,), namespaces=True, stranger=True, landlock=7)
    other = next(code for name, code in AUDIT.items() if name != machine)
    assert verdict(program, other, 0) == KILL
    assert verdict(program, AUDIT[machine], 0x40000000 + 39) == REFUSED


def test_each_call_has_one_filter_and_every_other_number_is_allowed(machine: str) -> None:
    program = seccomp.program((1, 2), namespaces=True, stranger=True, landlock=7)
    at = kernel.MACHINES.index(machine)
    known = {numbers[at] for numbers in kernel.SYSCALLS.values()}
    unknown = [number for number in range(600) if number not in known]
    said = {verdict(program, AUDIT[machine], number) for number in unknown}
    assert said == {ALLOW}
