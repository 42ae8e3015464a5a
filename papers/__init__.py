"""The papers' experiments, run again: claimed numbers beside measured ones."""

from overheard.data.source import add_sources

add_sources("papers.data")
