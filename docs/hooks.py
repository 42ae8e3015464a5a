"""What the build of the documentation adds: tables, the report of the demo, a check of names."""

from __future__ import annotations

import importlib
import inspect
import sys
from pathlib import Path
from typing import Any

from mkdocs.exceptions import PluginError
from mkdocs.structure.files import File

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

import overheard
from experiments import documentation

GENERATED = {
    "attack_table": documentation.attack_table,
    "attack_pages": documentation.attack_pages,
    "question_table": documentation.question_table,
}


def undocumented() -> list[str]:
    """Public names, and public methods of public classes, without a docstring of their own."""
    missing = []
    for name in overheard.__all__:
        thing = getattr(overheard, name)
        if not (thing.__doc__ or "").strip() or _inherited(thing):
            missing.append(name)
        for member, value in vars(thing).items() if inspect.isclass(thing) else ():
            plain = value.fget if isinstance(value, property) else getattr(value, "__func__", value)
            if member.startswith("_") or not inspect.isfunction(plain) or _is_protocol(thing):
                continue
            if not (plain.__doc__ or "").strip():
                missing.append(f"{name}.{member}")
    return missing


def _inherited(thing: Any) -> bool:
    return inspect.isclass(thing) and thing.__doc__ in {b.__doc__ for b in thing.__mro__[1:]}


def _is_protocol(thing: Any) -> bool:
    return bool(getattr(thing, "_is_protocol", False))


def api_page() -> str:
    """A directive for every public name, at the place where it is defined."""
    lines = []
    for name in overheard.__all__:
        home = importlib.import_module(f"overheard.{overheard._HOMES[name]}").__name__
        lines += [f"::: {home}.{name}", ""]
    return "\n".join(lines)


def on_pre_build(config: Any) -> None:
    """A public name without a docstring fails the build."""
    missing = undocumented()
    if missing:
        raise PluginError(f"public names without a docstring: {', '.join(missing)}")


def on_files(files: Any, config: Any) -> Any:
    """The demo's report is part of the site."""
    files.append(
        File.generated(config, "assets/demo/report.html", content=documentation.demo_page())
    )
    return files


def on_page_markdown(markdown: str, page: Any, config: Any, files: Any) -> str:
    """Replace ``<!-- generated: NAME -->`` by what NAME makes."""
    for name, make in {**GENERATED, "api_page": api_page}.items():
        marker = f"<!-- generated: {name} -->"
        if marker in markdown:
            markdown = markdown.replace(marker, make())
    return markdown
