"""When a test gives up on another process: it hangs, however busy the machine is."""

from __future__ import annotations

PATIENCE = 3600
"""Seconds. No test may pass or fail by what a machine does besides."""
