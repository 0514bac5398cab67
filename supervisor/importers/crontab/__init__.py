"""Conversion of crontabs."""
