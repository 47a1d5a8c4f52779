"""What a command in the sandbox may not ask the kernel for, as a seccomp filter for bubblewrap.

Namespaces do not cover everything that a process shares with others of its user:

1. **Keyrings**: the kernel's keys of the server's session and user could be read and used.
2. **Sockets** that no namespace holds: whatever listens on a Unix socket in the workspace, or at the
   host of a virtual machine, could be talked to, past the missing network. There are those of the
   network alone, and no pairs that could be connected elsewhere (datagrams).
3. **io_uring**, because it opens sockets where no filter looks.

Calls of another architecture than the machine's own would have other numbers: they end the process.
"""

from __future__ import annotations

import errno
import platform
import socket
import struct
from dataclasses import dataclass

_NUMBER, _ARCHITECTURE, _ARGUMENTS = 0, 4, 16
"""Where they are in what the kernel shows the filter; eight bytes for each argument."""
_LOAD, _AND, _IS, _FROM, _RETURN = 0x20, 0x54, 0x15, 0x35, 0x06
"""Instructions: a word of that, and, jump if equal, jump if at least, the verdict."""
_ALLOWED, _REFUSED, _KILLED = 0x7FFF0000, 0x00050000, 0x80000000
_KIND_OF_SOCKET = 0xF
"""The bits of a type that are no flags."""
_NETWORK = (socket.AF_INET, socket.AF_INET6, 16)
"""The families of sockets that there are: IP, and `AF_NETLINK`, by which programs ask for addresses."""
_X32 = 0x40000000
"""From here on x86-64 has the numbers of a third way to call."""


@dataclass(frozen=True, kw_only=True)
class _Numbers:
    """Of the kernel's `AUDIT_ARCH_…` and of its calls."""

    architecture: int
    add_key: int
    request_key: int
    keyctl: int
    socket: int
    socketpair: int
    io_uring_setup: int = 425


_GENERIC = {"add_key": 217, "request_key": 218, "keyctl": 219, "socket": 198, "socketpair": 199}
_MACHINES = {
    "x86_64": _Numbers(
        architecture=0xC000003E,
        add_key=248,
        request_key=249,
        keyctl=250,
        socket=41,
        socketpair=53,
    ),
    "aarch64": _Numbers(architecture=0xC00000B7, **_GENERIC),
    "riscv64": _Numbers(architecture=0xC00000F3, **_GENERIC),
}


def filter_for(machine: str = "") -> bytes | None:
    """The filter as `bwrap --seccomp` reads it, for this machine if none is named. None: its numbers
    are not known here."""
    numbers = _MACHINES.get(machine or platform.machine())
    if numbers is None:
        return None
    no_permission, no_such_call = _refuse(errno.EPERM), _refuse(errno.ENOSYS)
    program = [
        _do(_LOAD, _ARCHITECTURE),
        _do(_IS, numbers.architecture, yes=1),
        _do(_RETURN, _KILLED),
        _do(_LOAD, _NUMBER),
        *(_do(_FROM, _X32, no=1), no_such_call),
        *(_do(_IS, numbers.io_uring_setup, no=1), no_such_call),
    ]
    for number in (numbers.add_key, numbers.request_key, numbers.keyctl):
        program += [_do(_IS, number, no=1), no_permission]
    last = len(_NETWORK)
    program += [
        *(_do(_IS, numbers.socket, no=last + 3), _do(_LOAD, _ARGUMENTS)),
        *(_do(_IS, family, yes=last - place) for place, family in enumerate(_NETWORK)),
        *(no_permission, _do(_RETURN, _ALLOWED)),
        *(_do(_IS, numbers.socketpair, no=4), _do(_LOAD, _ARGUMENTS + 8)),
        *(_do(_AND, _KIND_OF_SOCKET), _do(_IS, socket.SOCK_DGRAM, no=1), no_permission),
        _do(_RETURN, _ALLOWED),
    ]
    return b"".join(program)


def _do(code: int, value: int, *, yes: int = 0, no: int = 0) -> bytes:
    """One instruction; `yes` and `no` are how many are skipped."""
    return struct.pack("=HBBI", code, yes, no, value)


def _refuse(error: int) -> bytes:
    return _do(_RETURN, _REFUSED | error)
