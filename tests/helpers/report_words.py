"""What a reader sees of a report."""

from __future__ import annotations

import html
import re


def words_of(page: str) -> str:
    """What a reader sees of a page, or of a part of it."""
    body = page.partition("<body>")[2].partition("<script>")[0] or page
    return re.sub(r"\s+", " ", html.unescape(re.sub(r"<[^>]+>", " ", body)))


def section(page: str, name: str) -> str:
    found = re.search(rf'<section id="{name}".*?</section>', page, re.DOTALL)
    assert found
    return found[0]
