"""Checks of the web settings and of the token file."""
