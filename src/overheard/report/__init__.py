"""Turns an audit's typed record into a page; computes nothing."""

from overheard.report.html import render, write_report
from overheard.report.verdict import headline

__all__ = ["headline", "render", "write_report"]
