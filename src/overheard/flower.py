"""Recording a Flower federation: ``pip install "overheard[flower]"``, then one line.

strategy = overheard.flower.record(FedAvg(), "/path/to/run")  # in the ServerApp's main
app = overheard.flower.record_app(app, "/path/to/run")        # or the whole ServerApp

and on the clients' side, an update that tells too much is stopped before it leaves:

app = ClientApp(mods=[overheard.flower.guard_mod("audit.toml", "site 3")])
"""

from __future__ import annotations

from overheard.errors import needs

with needs("flower"):
    from overheard.guard.flower_mod import Guarding, guard_mod
    from overheard.recorders.flower import record, record_app

__all__ = ["Guarding", "guard_mod", "record", "record_app"]
