"""Where a program can run, by the header of its file: ELF, PE or Mach-O.

Layouts: elf(5); Microsoft, PE Format; Apple, mach-o/loader.h and mach-o/fat.h.
"""

from __future__ import annotations

import struct
from contextlib import suppress
from pathlib import Path

_HEAD_BYTES = 4096
_ELF, _PE = b"\x7fELF", b"MZ"
# Machines of 64 bits run programs of 32 bits, too.
_ELF_MACHINES = {
    3: ("i686", "x86_64"), 21: ("ppc64le",), 62: ("x86_64",), 183: ("aarch64",), 243: ("riscv64",)
}  # fmt: skip
_PE_MACHINES = {0x14C: ("x86", "amd64"), 0x8664: ("amd64",), 0xAA64: ("arm64",)}
_MACH_CPUS = {0x01000007: "x86_64", 0x0100000C: "arm64"}
_MACH_ONE = {b"\xcf\xfa\xed\xfe": "<", b"\xfe\xed\xfa\xcf": ">"}  # 64 bits, by byte order
_MACH_MANY = b"\xca\xfe\xba\xbe"  # of Java's classes, too
_MOST_CPUS = 8


def platforms_of(path: Path) -> tuple[str, ...]:
    """Platforms for which a program was compiled, as hosts name theirs (`linux-x86_64`).

    Empty for what is no such program, a script for example, and for machines that are not known.
    """
    with path.open("rb") as file:
        head = file.read(_HEAD_BYTES)
    with suppress(struct.error, IndexError):  # cut off: no program
        if head.startswith(_ELF):
            return _elf(head)
        if head.startswith(_PE):
            return _pe(head)
        if order := _MACH_ONE.get(head[:4]):
            return _mach(struct.unpack_from(f"{order}I", head, 4))
        if head.startswith(_MACH_MANY):
            return _fat(head)
    return ()


def _elf(head: bytes) -> tuple[str, ...]:
    order = ">" if head[5] == 2 else "<"
    (machine,) = struct.unpack_from(f"{order}H", head, 18)
    return tuple(f"linux-{name}" for name in _ELF_MACHINES.get(machine, ()))


def _pe(head: bytes) -> tuple[str, ...]:
    (offset,) = struct.unpack_from("<I", head, 0x3C)
    if head[offset : offset + 4] != b"PE\0\0":
        return ()
    (machine,) = struct.unpack_from("<H", head, offset + 4)
    return tuple(f"windows-{name}" for name in _PE_MACHINES.get(machine, ()))


def _fat(head: bytes) -> tuple[str, ...]:
    (count,) = struct.unpack_from(">I", head, 4)
    if count > _MOST_CPUS:  # a class of Java, whose version stands there
        return ()
    return _mach(tuple(struct.unpack_from(">I", head, 8 + 20 * n)[0] for n in range(count)))


def _mach(cpus: tuple[int, ...]) -> tuple[str, ...]:
    return tuple(f"darwin-{_MACH_CPUS[cpu]}" for cpu in cpus if cpu in _MACH_CPUS)
