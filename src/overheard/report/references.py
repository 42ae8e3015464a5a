"""Which papers does an audit stand on? Their entries for a bibliography, by short name."""

from __future__ import annotations

import re

from overheard.evaluation.record import Audit
from overheard.report.words import WORDS

PAPERS = WORDS["papers"]


def title(short: str) -> str:
    """A paper in words, for one who does not know its short name; ours and guesses as they are."""
    if short not in PAPERS:
        ours = {"overheard": "overheard's own", "baseline": "a guess for comparison"}
        return ours.get(short, short)
    names = [author.split(",")[0] for author in PAPERS[short]["authors"].split(" and ")]
    who = " and ".join(names) if len(names) < 3 else f"{names[0]} et al."
    return f"{who} ({PAPERS[short]['year']}), “{PAPERS[short]['title']}”"


def bibtex(audit: Audit) -> str:
    """An entry for the program and one for each paper whose attack was run or skipped."""
    version = audit.run.software.get("overheard", "")
    version = re.sub(r"[^0-9A-Za-z.+_-]", "", version)  # it stands between fences and braces
    lines = [
        "@software{overheard,\n  title = {overheard: what can somebody who only listens to a "
        f"federation learn?}},\n  version = {{{version}}},\n  license = {{Apache-2.0}}\n}}"
    ]
    for short in dict.fromkeys(info.paper for info in audit.attacks if info.paper in PAPERS):
        paper = PAPERS[short]
        lines.append(
            f"@misc{{{paper.get('key', short)},\n  author = {{{paper['authors']}}},\n"
            f"  title = {{{paper['title']}}},\n  year = {{{paper['year']}}}\n}}"
        )
    return "\n".join(lines)
