"""Typed configuration: from files, variables and flags to one frozen value, or to every problem at once.

In reading order: models (what can be set), loader (how layers become settings), relations
(what must hold between them), complete (what needs the jobs), render (how they are shown).
"""
