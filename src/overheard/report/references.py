"""Which papers does an audit stand on? Their entries for a bibliography, by short name."""

from __future__ import annotations

import re
from collections.abc import Iterable

from overheard.evaluation.record import Audit

PAPERS: dict[str, tuple[str, str, str]] = {
    "xu2021": (
        "Xu, Chuan and Neglia, Giovanni",
        "What else is leaked when eavesdropping Federated Learning?",
        "2021",
    ),
    "driouich2022": (
        "Driouich, Ilias and Xu, Chuan and Neglia, Giovanni and Giroire, Frederic and Thomas, Eoin",
        "A Novel Model-Based Attribute Inference Attack in Federated Learning",
        "2022",
    ),
    "lyu2021": (
        "Lyu, Lingjuan and Chen, Chen",
        "A Novel Attribute Reconstruction Attack in Federated Learning",
        "2021",
    ),
    "leprovost2023": (
        "Leprovost, Jean and Jobic, Pierre and Mayoue, Aurélien",
        "Label Leakage from Regression Models Gradients in Federated Learning",
        "2023",
    ),
    "kerkouche2023": (
        "Kerkouche, Raouf and Ács, Gergely and Fritz, Mario",
        "Client-specific Property Inference against Secure Aggregation in Federated Learning",
        "2023",
    ),
    "Zhu et al. 2019": ("Zhu, Ligeng and Liu, Zhijian and Han, Song", "Deep Leakage from Gradients",
                        "2019"),
}  # fmt: skip
_KEYS = {"Zhu et al. 2019": "zhu2019"}


def title(short: str) -> str:
    """A paper in words, for one who does not know its short name; ours and guesses as they are."""
    if short not in PAPERS:
        return {"overheard": "overheard's own", "baseline": "a guess for comparison"}.get(
            short, short
        )
    authors, name, year = PAPERS[short]
    first = authors.split(",")[0]
    more = " et al." if authors.count(" and ") > 1 else ""
    second = authors.split(" and ")[1].split(",")[0] if authors.count(" and ") == 1 else ""
    who = f"{first} and {second}" if second else f"{first}{more}"
    return f"{who} ({year}), “{name}”"


def bibtex(audit: Audit) -> str:
    """An entry for the program and one for each paper whose attack was run or skipped."""
    used = dict.fromkeys(info.paper for info in audit.attacks if info.paper in PAPERS)
    return "\n".join([_program(audit.run.software.get("overheard", "")), *_entries(used)])


def _program(version: str) -> str:
    version = re.sub(r"[^0-9A-Za-z.+_-]", "", version)  # it stands between fences and braces
    return (
        "@software{overheard,\n  title = {overheard: what can somebody who only listens to a "
        f"federation learn?}},\n  version = {{{version}}},\n  license = {{Apache-2.0}}\n}}"
    )


def _entries(used: Iterable[str]) -> list[str]:
    lines = []
    for short in used:
        authors, name, year = PAPERS[short]
        lines.append(
            f"@misc{{{_KEYS.get(short, short)},\n  author = {{{authors}}},\n"
            f"  title = {{{name}}},\n  year = {{{year}}}\n}}"
        )
    return lines
