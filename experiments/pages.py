"""What readers see of the results: tables in README and docs, whole pages, pictures.

A module of `experiments` says what it makes: ``TABLES``, by the name between the markers
``<!-- table: NAME -->`` and ``<!-- end -->``, and ``PAGES``, by the path of the file. Each is a
function without arguments that returns the text.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from pathlib import Path

from experiments.runner import HERE, modules

ROOT = HERE.parent
Make = Callable[[], str]


def table(heads: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """A table in Markdown."""
    cells = [heads, ["---"] * len(heads), *rows]
    safe = [[cell.replace("|", "\\|") for cell in row] for row in cells]
    return "\n".join(f"| {' | '.join(row)} |" for row in safe)


def gathered(name: str) -> dict[str, Make]:
    """All modules' ``TABLES`` or ``PAGES``: a mapping, or a function that returns one."""
    found: dict[str, Make] = {}
    for module in modules():
        made = getattr(module, name, {})
        found |= made() if callable(made) else made
    return found


def filled(text: str) -> str:
    """The text with every table between its markers made anew."""
    for name, make in gathered("TABLES").items():
        start, end = f"<!-- table: {name} -->\n", "<!-- end -->"
        if start in text:
            before, _, rest = text.partition(start)
            text = f"{before}{start}{make()}\n{end}{rest.partition(end)[2]}"
    return text


def files() -> dict[Path, str]:
    """Every file that is made or filled, as it should be."""
    made = {ROOT / path: make() for path, make in gathered("PAGES").items()}
    marked = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
    texts = {path: path.read_text(encoding="utf-8") for path in marked if path not in made}
    return made | {path: filled(text) for path, text in texts.items() if "<!-- table: " in text}


def write() -> list[Path]:
    """Write those that are not as they should be; returns their paths."""
    changed = []
    for path, text in files().items():
        if not path.exists() or path.read_text(encoding="utf-8") != text:
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text, encoding="utf-8")
            changed.append(path)
    return changed
