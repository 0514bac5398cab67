"""Bounds of histograms that several metrics share, in seconds."""

from __future__ import annotations

RUN_SECONDS = (0.001, 0.005, 0.02, 0.1, 0.5, 2, 10, 60, 300, 1800, 7200)
CALL_SECONDS = (0.0002, 0.0005, 0.001, 0.0025, 0.005, 0.01, 0.05, 0.25, 1, 5)
