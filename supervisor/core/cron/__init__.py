"""Cron expressions: parsing, instants, time zones, explanations."""
