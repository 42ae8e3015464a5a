"""What the build of the documentation adds: tables, the public names, the report of the demo."""

from __future__ import annotations

import importlib
import re
import sys
from pathlib import Path
from typing import Any

from mkdocs.structure.files import File

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

import overheard
from experiments import documentation


def api_page() -> str:
    """A directive for every public name, at the place where it is defined."""
    lines = []
    for name in overheard.__all__:
        home = importlib.import_module(overheard._HOMES[name]).__name__
        lines += [f"::: {home}.{name}", ""]
    return "\n".join(lines)


def on_files(files: Any, config: Any) -> Any:
    """The demo's report is part of the site."""
    files.append(
        File.generated(config, "assets/demo/report.html", content=documentation.demo_page())
    )
    return files


def on_page_markdown(markdown: str, page: Any, config: Any, files: Any) -> str:
    """Replace ``<!-- generated: NAME -->`` by what the function NAME makes, here or there."""
    made = {**vars(documentation), "api_page": api_page}
    return re.sub(r"<!-- generated: (\w+) -->", lambda marker: made[marker[1]](), markdown)
