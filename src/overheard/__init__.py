"""overheard: what can somebody who only listens learn about each client's data?

The public names below are loaded when they are first used, so that ``import overheard`` is
quick and imports no heavy library.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from overheard.attacks import all_attacks, attack_named
    from overheard.evaluation.audit import audit
    from overheard.evaluation.parts import AuditOptions
    from overheard.evaluation.record import Audit, read_audit
    from overheard.federation.federation import Federation, parse_config, read_config
    from overheard.federation.plan import plan
    from overheard.federation.simulate import simulate
    from overheard.guard.preflight import preflight, preflight_updates
    from overheard.recorders.recorder import Recorder
    from overheard.report.html import write_report
    from overheard.transcript.share import share
    from overheard.transcript.store import Recording
    from overheard.transcript.target import Target
    from overheard.transcript.threat import Threat, threat_named
    from overheard.transcript.verify import verify
    from overheard.transcript.view import Attack, View, launch, observe

_NAMES = {
    "attacks": ("all_attacks", "attack_named"),
    "evaluation.audit": ("audit",),
    "evaluation.parts": ("AuditOptions",),
    "evaluation.record": ("Audit", "read_audit"),
    "federation.federation": ("Federation", "parse_config", "read_config"),
    "federation.plan": ("plan",),
    "federation.simulate": ("simulate",),
    "guard.preflight": ("preflight", "preflight_updates"),
    "recorders.recorder": ("Recorder",),
    "report.html": ("write_report",),
    "transcript.share": ("share",),
    "transcript.store": ("Recording",),
    "transcript.target": ("Target",),
    "transcript.threat": ("Threat", "threat_named"),
    "transcript.verify": ("verify",),
    "transcript.view": ("Attack", "View", "launch", "observe"),
}
_HOMES = {name: home for home, names in _NAMES.items() for name in names}

__version__ = "0.1.0"
__all__ = [
    "Attack", "Audit", "AuditOptions", "Federation", "Recorder", "Recording", "Target", "Threat",
    "View", "all_attacks", "attack_named", "audit", "launch", "observe", "parse_config", "plan",
    "preflight", "preflight_updates", "read_audit", "read_config", "share", "simulate",
    "threat_named", "verify", "write_report",
]  # fmt: skip


def __getattr__(name: str) -> Any:
    if name in _HOMES:
        return getattr(import_module(f"overheard.{_HOMES[name]}"), name)
    raise AttributeError(f"module 'overheard' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
