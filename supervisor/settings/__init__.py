"""Typed configuration: from files, variables and flags to one frozen value, or to every problem at once.

In reading order: models (the settings there are), loader (layers become settings), relations
(rules between them), complete (parts that need the jobs), render (their display).
"""
