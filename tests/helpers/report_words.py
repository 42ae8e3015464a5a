"""What a reader sees of a report; and an audit without what differs from run to run."""

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


def without_seconds(audit: str) -> str:
    """All that the JSON of an audit says, the measured seconds aside."""
    return re.sub(r'"seconds": [^,\n}]+', '"seconds": 0', audit)
