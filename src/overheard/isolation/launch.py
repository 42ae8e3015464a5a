"""Run an attack in a child process that holds its view and can reach nothing else.

`overheard.transcript.view.launch` keeps an attack from what it did not declare by not handing it
over: that guards against accident and carelessness. Code that wants to cheat runs in the same
process and can walk frames, the garbage collector's objects and the disk. For attacks that somebody
else wrote there is `launch_isolated`: the same view, needs and random stream, but in a child that
gets them as bytes on stdin. It has no path of the recording, an empty working directory, a clean
environment and hard limits, and behind the walls of `jail` it can neither read the disk nor reach
the network or another process. Its guess comes back as bytes that are read like a stranger's file.
"""

from __future__ import annotations

import json
import os
import sys
import sysconfig
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np

from overheard.errors import AttackFailed, FixConfig
from overheard.foreign import jail
from overheard.foreign.files import inside
from overheard.foreign.limits import limit, variable
from overheard.foreign.process import OUT_OF_TIME, run_child
from overheard.foreign.shown import short
from overheard.isolation.envelope import pack_call, unpack_guess
from overheard.transcript import guess as guesses
from overheard.transcript.knowledge import AttributeDomain, CandidatePool, PublicRecords
from overheard.transcript.view import Attack, View, launch, launched_as

HERE = Path(__file__).resolve().parent
PACKAGE = HERE.parent
SYSTEM = (
    *("/lib", "/lib64", "/usr/lib", "/usr/lib64", "/etc/ld.so.cache"),
    *("/dev/null", "/dev/urandom", "/proc/cpuinfo", "/sys/devices/system/cpu"),
)


def launch_isolated(
    attack: Attack, view: View, seed: int, hidden: Iterable[Path] = (), partial: bool = False
) -> Any:
    """`launch` in a child process: the same guess, from code that can reach nothing but its view.

    ``hidden``: paths that must be out of its reach, which is checked before it starts; the child
    is not told of them. ``partial``: go on where the system lacks a means (see `means`); without
    it that is an error. Raises what the attack raises if that says that it does not apply, else
    `AttackFailed`: for a crash, for going beyond a limit, for an answer that is no guess.
    """
    isolated: Any = Isolated(attack, tuple(hidden), partial)
    return launch(isolated, view, seed)


def from_outside(attack: Attack) -> bool:
    """Whether an attack is somebody else's: not of this package."""
    return type(attack).__module__.partition(".")[0] != PACKAGE.name


@contextmanager
def isolating(every: bool | None = None, hidden: Iterable[Path] = ()) -> Iterator[None]:
    """Within: whatever `launch` runs, wherever it is called, runs isolated.

    ``every``: our own attacks too; by default those that come from outside the package; ``False``
    none at all, because you trust them.
    """
    paths = tuple(hidden)

    def held(attack: Attack) -> Attack:
        if isinstance(attack, Isolated) or not (from_outside(attack) if every is None else every):
            return attack
        isolated: Any = Isolated(attack, paths)
        return isolated  # type: ignore[no-any-return]

    with launched_as(held):
        yield


@cache
def means() -> dict[str, str]:
    """How this system holds an isolated attack; '' where it has no means."""
    return jail.available()


@dataclass(frozen=True)
class Isolated:
    """An attack that runs in a child process whenever it is called; in all else it is the same."""

    attack: Attack
    hidden: tuple[Path, ...] = ()
    partial: bool = False

    def __post_init__(self) -> None:
        object.__setattr__(self, "__doc__", self.attack.__doc__)

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        return getattr(self.attack, name)

    def __call__(self, view: View, rng: np.random.Generator) -> Any:
        lacking = [what for what, how in means().items() if not how]
        if lacking and not self.partial:
            raise FixConfig(
                f"this system cannot keep {self.name!r} from the {' and from '.join(lacking)} "
                "(that takes Linux 5.13 or newer with Landlock, on x86-64 or 64-bit ARM); run it "
                "where there is nothing to find, or trust it: --no-isolate"
            )
        roots = {"overheard": PACKAGE / "__init__.py"} | _root(type(self.attack), self.name)
        for kind in view.kinds:
            roots |= _root(kind, self.name)
        readable = _readable(roots)
        for path in self.hidden:
            if within := [place for place in readable if inside(Path(place), path)]:
                raise FixConfig(
                    f"{path} lies in {within[0]}, which an isolated attack must read for its code; "
                    "move it elsewhere"
                )
        head = {
            "jail": str(PACKAGE / "foreign" / "jail.py"),
            "parent": os.getpid(),
            "partial": self.partial,
            "path": _packages(),
            "roots": {name: str(file) for name, file in roots.items()},
            "readable": readable,
            "limits": {
                "RLIMIT_CPU": limit("attack_seconds"),
                "RLIMIT_DATA": limit("attack_bytes"),
                "RLIMIT_FSIZE": limit("answer_bytes"),
                "RLIMIT_NOFILE": 512,
            },
        }
        told = json.dumps(head).encode() + b"\n" + pack_call(self.attack, view, rng)
        guess = unpack_guess(_run(told, self.name), self.name, view.target.asked.answers)
        return checked(guess, view, self.name)


def checked(guess: Any, view: View, name: str) -> Any:
    """The guess, if it answers what was asked, for as many records as there are."""
    asked = view.target.asked
    if not isinstance(guess, asked.answers):
        raise AttackFailed(
            f"attack {name!r} answers {asked.name!r} with {type(guess).__name__}, not with "
            f"{' or '.join(kind.__name__ for kind in asked.answers)}"
        )
    if not all(isinstance(k, str) and len(k) < 200 for k in guess.diagnostics) or not all(
        isinstance(v, float | int) or (isinstance(v, str) and len(v) < 2000)
        for v in guess.diagnostics.values()
    ):
        raise AttackFailed(f"attack {name!r}: diagnostics are names with numbers or short texts")
    if isinstance(guess, guesses.AttributeValues) and AttributeDomain in view.kinds:
        values = view.know(AttributeDomain).values
        if guess.values != values:
            raise AttackFailed(
                f"attack {name!r} answers {short(guess.values)}, not {short(values)}"
            )
    expected, answered = _asked_of(view), _answered(guess)
    if None not in (expected, answered) and expected != answered:
        raise AttackFailed(f"attack {name!r} answers for {answered} records, not for {expected}")
    return guess


def _asked_of(view: View) -> int | None:
    """How many records are asked about, where the view tells."""
    if CandidatePool in view.kinds:
        return len(view.know(CandidatePool).labels)
    if PublicRecords in view.kinds:
        return len(view.know(PublicRecords).records) or None  # of no public column: nobody knows
    return None


def _answered(guess: Any) -> int | None:
    if isinstance(guess, guesses.AttributeValues | guesses.Membership):
        return len(guess.probabilities)
    return len(guess.values) if isinstance(guess, guesses.LabelValues) else None


def _run(told: bytes, name: str) -> bytes:
    """The child's answer."""
    words = ["-S", str(HERE / "child.py")]
    most = limit("answer_bytes") + 1
    code, raw, said = run_child(words, told, limit("attack_seconds"), most)
    if raw and code in (0, 3):
        return raw
    if code in OUT_OF_TIME:
        raise AttackFailed(
            f"attack {name!r} took more than {limit('attack_seconds')} seconds; raise "
            f"{variable('attack_seconds')}"
        )
    last = " ".join(said.splitlines()[-1:])
    raise AttackFailed(
        f"attack {name!r} ended without a guess (exit {code}: {short(last)}); if it ran out of "
        f"memory, raise {variable('attack_bytes')}"
    )


def _packages() -> list[str]:
    """Where installed packages lie: of the interpreter's search path, no folder of the user's."""
    ends = ("site-packages", "dist-packages")
    return [place for place in sys.path if Path(place).name in ends and Path(place).is_dir()]


def _root(kind: type[Any], attack: str) -> dict[str, Path]:
    """The file of the top-level module of an attack, or of a kind of knowledge that it is given."""
    top = kind.__module__.partition(".")[0]
    file = getattr(sys.modules.get(top), "__file__", None)
    if top == "__main__" or file is None or "<" in kind.__qualname__:
        raise FixConfig(
            f"attack {attack!r} is a {kind.__module__}.{kind.__qualname__}, which a child "
            "process cannot import; define it at the top of a module or package of its own"
        )
    return {top: Path(file).resolve()}


def _readable(roots: dict[str, Path]) -> list[str]:
    """What the child may read: the interpreter, installed packages, the code of the attack."""
    own = [sysconfig.get_path(name) for name in ("stdlib", "platstdlib")]
    libraries = [Path(root) / name for root in (sys.base_prefix, sys.prefix) for name in _LIBRARIES]
    code = [file.parent if file.name == "__init__.py" else file for file in roots.values()]
    return list(dict.fromkeys(map(str, (*own, *libraries, *_packages(), *code, HERE, *SYSTEM))))


_LIBRARIES = ("lib", "lib64")
