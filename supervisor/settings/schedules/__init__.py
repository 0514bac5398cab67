"""Schedules of a configuration: fields, rules, conversion to stored definitions."""
