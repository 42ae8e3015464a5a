"""Recording a Flower federation: ``pip install "overheard[flower]"``, then one line.

strategy = overheard.flower.record(FedAvg(), "/path/to/run")  # in the ServerApp's main
app = overheard.flower.record_app(app, "/path/to/run")        # or the whole ServerApp
"""

from __future__ import annotations

from overheard.federation.recorders.flower import record, record_app

__all__ = ["record", "record_app"]
