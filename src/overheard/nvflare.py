"""Recording an NVIDIA FLARE job: ``pip install "overheard[nvflare]"``, then one line.

job.to_server(overheard.nvflare.RecordingWidget("/path/to/run"))
recipe.add_server_output_filter(overheard.nvflare.RecordingFilter("/path/to/run"), ["train"])
"""

from __future__ import annotations

from overheard.errors import needs

with needs("nvflare"):
    from overheard.recorders.nvflare import RecordingFilter, RecordingWidget

__all__ = ["RecordingFilter", "RecordingWidget"]
