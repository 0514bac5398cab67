"""Readers of other programs' configuration files."""
