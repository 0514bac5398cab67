"""Reload of a running tree: check, comparison, transfer of the new configuration."""
