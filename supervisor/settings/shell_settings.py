"""The settings of ``shell.command``: what its commands are given of the tree that runs them."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

from supervisor.core.confinement import INHERITED, Confinement
from supervisor.settings.section import Section

VARIABLES_MAX = 100


class ShellSettings(Section):
    """What commands of ``shell.command`` are started with."""

    env: list[Annotated[str, Field(min_length=1, max_length=200)]] = Field(
        default=[*INHERITED], max_length=VARIABLES_MAX
    )
    """Names or patterns of the variables that they inherit of the tree. Never what the configuration reads by
    ``${env:NAME}``, nor ``TENURE_*`` settings: a tree removes those from its environment."""

    @property
    def confinement(self) -> Confinement:
        """The same for the processes that start commands."""
        return Confinement(env=tuple(self.env))
