"""Recording an NVIDIA FLARE job: ``pip install "overheard[nvflare]"``, then one line.

job.to_server(overheard.nvflare.RecordingWidget("/path/to/run"))
"""

from __future__ import annotations

from overheard.federation.recorders.nvflare import RecordingWidget

__all__ = ["RecordingWidget"]
