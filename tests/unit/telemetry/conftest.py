"""Keeps what logging and metrics hold globally from leaking between tests."""

from __future__ import annotations

import logging
from collections.abc import Iterator

import pytest
import structlog

from supervisor.telemetry import logs, metrics
from supervisor.telemetry.log_lines.log_sink import Sink
from tests.kit.clock import FakeClock


@pytest.fixture
def still_clock() -> FakeClock:
    """2026-11-20T12:34:56.007Z."""
    return FakeClock(wall_ms=1_795_178_096_007)


@pytest.fixture
def logging_restored() -> Iterator[None]:
    """Put structlog, logging and warnings back as they were."""
    root = logging.getLogger()
    handlers, level = list(root.handlers), root.level
    configure, configure_once = structlog.configure, structlog.configure_once
    yield
    structlog.configure, structlog.configure_once = configure, configure_once
    logging.captureWarnings(capture=False)
    root.handlers[:] = handlers
    root.setLevel(level)
    structlog.reset_defaults()
    logs._last.replace(Sink())
    logs._last.install = None


@pytest.fixture
def metrics_restored() -> Iterator[None]:
    """Count in memory again afterwards, from zero."""
    yield
    metrics.forget()
