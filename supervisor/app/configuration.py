"""Loading of a configuration, with every importer that there is."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

from supervisor.importers.foreign import Foreign
from supervisor.settings import loader
from supervisor.settings.loader import Loaded


def load(
    *, files: Sequence[Path], environ: Mapping[str, str], flags: Mapping[str, object], compat: str | None = None
) -> Loaded:
    """Return the configuration, as the loader does; files may be in another program's format.

    Args:
        files: files, or directories whose ``*.yaml`` are read by name.
        environ: the environment; only ``TENURE_…`` variables are settings, all serve ``${env:…}``.
        flags: values by path, such as ``{"web.port": "8080"}``; texts are read like variables.
        compat: the format of files that are not native, or None unless a file names it.

    Raises:
        UnusableError: with every problem found.
    """
    return loader.load(files=files, environ=environ, flags=flags, compat=compat, make_importer=Foreign)
