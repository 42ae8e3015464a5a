"""Options that several commands share, as typer reads them."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

from typer import Argument, Option

Run = Annotated[Path, Argument(help="A recording.")]
Out = Annotated[Path, Option(help="Where to write; must not exist yet.")]
Config = Annotated[Path, Argument(help="TOML file that describes the federation.")]
Seed = Annotated[int | None, Option(help="Seed of every random choice.", show_default="0")]
THREATS = "Threat model: eavesdropper, server, isolating-server, secure-server."
Threat = Annotated[str, Option(help=THREATS)]
Grant = Annotated[
    list[str], Option(help='Knowledge beyond the threat model (repeat), e.g. "group counts".')
]
Describing = Annotated[
    Path | None,
    Option("--with", help="What the recording lacks (`overheard init`); default: RUN/audit.toml."),
]
TrustCode = Annotated[
    bool,
    Option("--trust-code", help="Import the model factory that the TOML file of --with names."),
]
Workers = Annotated[
    str,
    Option(
        help="Processes, or ray (or HOST:PORT of a Ray cluster whose nodes see the same files); "
        "results are the same.",
        show_default="as many as are worth it",
    ),
]
