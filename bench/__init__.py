"""Benchmarks: what the documents claim, measured."""
