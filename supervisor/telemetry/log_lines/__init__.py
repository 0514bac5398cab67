"""Rendering and writing of log lines."""
