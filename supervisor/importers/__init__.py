"""Readers of other programs' configuration files."""

from __future__ import annotations

KEY = "compat"
"""Key of a file that names its format."""

FORMATS = ("cloudforet",)
"""Formats that a configuration may have besides the native one."""
