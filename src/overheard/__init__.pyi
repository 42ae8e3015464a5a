"""The public names, each with its home: what ``import overheard`` offers, and nothing else."""

from overheard.attacks import all_attacks as all_attacks
from overheard.attacks import attack_named as attack_named
from overheard.evaluation.audit import audit as audit
from overheard.evaluation.parts import AuditOptions as AuditOptions
from overheard.evaluation.record import Audit as Audit
from overheard.evaluation.record import read_audit as read_audit
from overheard.federation.federation import Federation as Federation
from overheard.federation.federation import parse_config as parse_config
from overheard.federation.federation import read_config as read_config
from overheard.federation.plan import plan as plan
from overheard.federation.simulate import simulate as simulate
from overheard.guard.preflight import preflight as preflight
from overheard.guard.preflight import preflight_updates as preflight_updates
from overheard.recorders.recorder import Recorder as Recorder
from overheard.report.html import write_report as write_report
from overheard.transcript.share import share as share
from overheard.transcript.store import Recording as Recording
from overheard.transcript.target import Target as Target
from overheard.transcript.threat import Threat as Threat
from overheard.transcript.threat import threat_named as threat_named
from overheard.transcript.verify import verify as verify
from overheard.transcript.view import Attack as Attack
from overheard.transcript.view import View as View
from overheard.transcript.view import launch as launch
from overheard.transcript.view import observe as observe

__version__: str
__all__: list[str]
_HOMES: dict[str, str]
