"""Loading of a configuration, with every importer that there is: files may be in another program's format."""

from __future__ import annotations

from functools import partial

from supervisor.importers.foreign import Foreign
from supervisor.settings import loader

load = partial(loader.load, make_importer=Foreign)
