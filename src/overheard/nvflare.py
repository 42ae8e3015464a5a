"""Recording an NVIDIA FLARE job: ``pip install "overheard[nvflare]"``, then one line.

job.to_server(overheard.nvflare.RecordingWidget("/path/to/run"))
recipe.add_server_output_filter(overheard.nvflare.RecordingFilter("/path/to/run"), ["train"])
"""

from __future__ import annotations

try:
    from overheard.recorders.nvflare import RecordingFilter, RecordingWidget
except ModuleNotFoundError as error:
    if (error.name or "").partition(".")[0] != "nvflare":
        raise
    raise ModuleNotFoundError(
        "overheard.nvflare needs NVIDIA FLARE: pip install 'overheard[nvflare]'", name="nvflare"
    ) from error

__all__ = ["RecordingFilter", "RecordingWidget"]
