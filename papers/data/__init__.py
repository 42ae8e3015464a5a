"""The papers' data sources: a module each, their facts in ``sources.toml``."""

from __future__ import annotations

from overheard.data.source import read_sources
from papers.data.files import described

SOURCES = read_sources("papers.data", described)
