"""The papers' data sources: a module each, their facts in ``sources.toml``."""

from __future__ import annotations

from experiments.data.files import described
from overheard.data.source import read_sources

SOURCES = read_sources("experiments.data", described)
