"""Metric values in files that belong to slots."""
