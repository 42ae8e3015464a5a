"""What a process gives up before it runs a stranger's code, and whether this system can take it.

Two things of the Linux kernel, neither of which needs rights or packages: Landlock (the file system
but for what is named is out of reach) and seccomp (no sockets, no other processes, nobody else's
memory, no change of anybody's files). Standard library only: the child runs this before anything
else is imported, while it has a single thread.

What stays within reach: the names, sizes and dates of files whose path is known (Landlock does not
hide them; folders cannot be listed), the clock, the processor's features.
"""

from __future__ import annotations

import ctypes
import errno
import os
import platform
import resource
import struct
import sys
from collections.abc import Iterable, Mapping

_CREATE_RULESET, _ADD_RULE, _RESTRICT_SELF = 444, 445, 446  # the same on every architecture
_READ_FILE, _READ_DIR = 1 << 2, 1 << 3
_FOLDERS = 1 << 4 | 1 << 7  # to make and remove folders, which is all that torch asks for
_SCOPED = 0b11  # abstract sockets, signals
_RIGHTS = {1: 13, 2: 14, 3: 15, 5: 16}  # how many kinds of access a version knows
_NO_NEW_PRIVILEGES, _SECCOMP, _DEATH_SIGNAL = 38, 22, 1
_KILL = 9
_THREAD = 0x10000  # of clone's flags

# Calls that are refused, by their number on x86-64 and on 64-bit ARM (None: it has no such call).
_REFUSED: Mapping[str, tuple[int | None, int | None]] = {
    # sockets
    "socket": (41, 198), "connect": (42, 203), "bind": (49, 200), "listen": (50, 201),
    # other processes: to make, replace, watch or signal one
    "fork": (57, None), "vfork": (58, None), "execve": (59, 221), "execveat": (322, 281),
    "ptrace": (101, 117), "kill": (62, 129), "tkill": (200, 130), "pidfd_open": (434, 434),
    "pidfd_getfd": (438, 438), "pidfd_send_signal": (424, 424), "process_vm_readv": (310, 270),
    "process_vm_writev": (311, 271), "process_madvise": (440, 440), "kcmp": (312, 272),
    "rt_sigqueueinfo": (129, 138), "rt_tgsigqueueinfo": (297, 240),
    # memory and queues that others share
    "shmget": (29, 194), "shmat": (30, 196), "msgget": (68, 186), "semget": (64, 190),
    "mq_open": (240, 180), "add_key": (248, 217), "request_key": (249, 218), "keyctl": (250, 219),
    # files: what Landlock lets pass
    "chmod": (90, None), "fchmod": (91, 52), "fchmodat": (268, 53), "fchmodat2": (452, 452),
    "chown": (92, None), "fchown": (93, 55), "lchown": (94, None), "fchownat": (260, 54),
    "setxattr": (188, 5), "lsetxattr": (189, 6), "fsetxattr": (190, 7), "removexattr": (197, 14),
    "lremovexattr": (198, 15), "fremovexattr": (199, 16), "utime": (132, None),
    "utimes": (235, None), "futimesat": (261, None), "utimensat": (280, 88),
    "inotify_init": (253, None), "inotify_init1": (294, 26), "fanotify_init": (300, 262),
    "open_by_handle_at": (304, 265),
    # the kernel itself
    "unshare": (272, 97), "setns": (308, 268), "mount": (165, 40), "bpf": (321, 280),
    "perf_event_open": (298, 241), "userfaultfd": (323, 282), "io_uring_setup": (425, 425),
    "init_module": (175, 105), "finit_module": (313, 273), "reboot": (169, 142),
}  # fmt: skip
_CLONE, _CLONE3, _TGKILL = (56, 220), (435, 435), (234, 131)
_MACHINES = {"x86_64": (0, 0xC000003E), "aarch64": (1, 0xC00000B7)}


def landlock_version() -> int:
    """The kernel's version of Landlock; 0 where there is none."""
    if not sys.platform.startswith("linux"):
        return 0
    found = _libc().syscall(_CREATE_RULESET, None, ctypes.c_size_t(0), ctypes.c_uint32(1))
    return max(int(found), 0)


def available() -> dict[str, str]:
    """How this system can hold an attack: each means, or '' where it has none."""
    version = landlock_version()
    known = sys.platform.startswith("linux") and platform.machine() in _MACHINES
    return {
        "file system": f"Landlock, version {version}" if version else "",
        "network and other processes": "seccomp" if known else "",
    }


def enter(readable: Iterable[str], limits: Mapping[str, int], parent: int) -> dict[str, str]:
    """Give everything up for good but reading what is named; returns what held, as `available`.

    In the working directory folders may be made, and no files.

    Means that the system lacks are left out, and so missing from the answer: whoever relies on them
    must look. Anything else that fails is an `OSError`.
    """
    held = available()
    libc = _libc()
    if sys.platform.startswith("linux"):
        _check(libc.prctl(_DEATH_SIGNAL, _KILL, 0, 0, 0), "prctl")
        if os.getppid() != parent:
            raise OSError(errno.ESRCH, "the process that asked has ended")
        _check(libc.prctl(_NO_NEW_PRIVILEGES, 1, 0, 0, 0), "prctl")
    if held["file system"]:
        _landlock(libc, readable, landlock_version())
    _limit(limits)
    if sys.platform.startswith("linux"):
        _drop_capabilities(libc)
    if held["network and other processes"]:
        _seccomp(libc)
    return held


def _libc() -> ctypes.CDLL:
    return ctypes.CDLL(None, use_errno=True)


def _check(result: int, what: str) -> int:
    if result < 0:
        number = ctypes.get_errno()
        raise OSError(number, f"{what}: {os.strerror(number)}")
    return result


def _landlock(libc: ctypes.CDLL, readable: Iterable[str], version: int) -> None:
    rights = (1 << _RIGHTS[max(v for v in _RIGHTS if v <= version)]) - 1
    fields = [rights, 0b11 if version >= 4 else None, _SCOPED if version >= 6 else None]
    known = [field for field in fields if field is not None]
    raw = struct.pack(f"={len(known)}Q", *known)
    rules = _check(
        libc.syscall(_CREATE_RULESET, raw, ctypes.c_size_t(len(raw)), ctypes.c_uint32(0)),
        "landlock_create_ruleset",
    )
    for path, access in {os.getcwd(): _FOLDERS, **dict.fromkeys(readable, _READ_FILE)}.items():
        try:
            place = os.open(path, os.O_PATH | os.O_CLOEXEC)
        except FileNotFoundError:
            continue
        rule = struct.pack("=Qi", access | (_READ_DIR if os.path.isdir(path) else 0), place)
        _check(
            libc.syscall(_ADD_RULE, rules, ctypes.c_uint32(1), rule, ctypes.c_uint32(0)),
            "landlock_add_rule",
        )
        os.close(place)
    _check(libc.syscall(_RESTRICT_SELF, rules, ctypes.c_uint32(0)), "landlock_restrict_self")
    os.close(rules)


def _limit(limits: Mapping[str, int]) -> None:
    """Hard limits by the names of the module `resource`."""
    for name, most in {"RLIMIT_CORE": 0, **limits}.items():
        kind = getattr(resource, name)
        _, hard = resource.getrlimit(kind)
        least = most if hard == resource.RLIM_INFINITY else min(most, hard)
        resource.setrlimit(kind, (least, least))


def _drop_capabilities(libc: ctypes.CDLL) -> None:
    """Root without what makes it root: the owner of its files, which Landlock keeps from it."""
    head = struct.pack("=Ii", 0x20080522, 0)
    _check(libc.capset(head, bytes(24)), "capset")


def _seccomp(libc: ctypes.CDLL) -> None:
    which, architecture = _MACHINES[platform.machine()]
    load, equal, at_least, any_bit, done = 0x20, 0x15, 0x35, 0x45, 0x06
    allow, refuse = 0x7FFF0000, 0x00050000
    no, absent = refuse | errno.EPERM, refuse | errno.ENOSYS
    program = [
        (load, 0, 0, 4),
        (equal, 1, 0, architecture),
        (done, 0, 0, no),
        (load, 0, 0, 0),
    ]
    if which == 0:  # the numbers of x32, a second set on the same machine
        program += [(at_least, 0, 1, 0x40000000), (done, 0, 0, no)]
    for numbers in _REFUSED.values():
        number = numbers[which]
        if number is not None:
            program += [(equal, 0, 1, number), (done, 0, 0, no)]
    program += [(equal, 0, 1, _CLONE3[which]), (done, 0, 0, absent)]  # clone is tried then
    program += [  # threads, but no processes
        (equal, 0, 4, _CLONE[which]),
        (load, 0, 0, 16),
        (any_bit, 0, 1, _THREAD),
        (done, 0, 0, allow),
        (done, 0, 0, no),
    ]
    program += [  # signals to itself: abort()
        (equal, 0, 3, _TGKILL[which]),
        (load, 0, 0, 16),
        (equal, 1, 0, os.getpid()),
        (done, 0, 0, no),
        (done, 0, 0, allow),
    ]
    raw = b"".join(struct.pack("=HBBI", *one) for one in program)
    held = ctypes.create_string_buffer(raw, len(raw))
    head = struct.pack("@HP", len(program), ctypes.addressof(held))
    _check(libc.prctl(_SECCOMP, 2, head, 0, 0), "seccomp")
