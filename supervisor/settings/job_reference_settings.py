"""The settings of references in arguments: which variables and files of a worker runs may name."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

from supervisor.core.job_references import ENV_ALLOWED, FILES_ALLOWED
from supervisor.settings.section import Section


class JobReferenceSettings(Section):
    """References in arguments of jobs (``env:NAME``, ``file:/path``), which a worker resolves."""

    env: list[Annotated[str, Field(min_length=1, max_length=200)]] = Field(default=[*ENV_ALLOWED], max_length=100)
    """Names or patterns of variables that arguments may refer to. Never ``TENURE_*``."""

    files: list[Annotated[str, Field(pattern="^/", max_length=1000)]] = Field(default=[*FILES_ALLOWED], max_length=100)
    """Files, and directories with all below them, that arguments may refer to. Never /proc or the tokens file."""
