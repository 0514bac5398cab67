"""Encoding and decoding of the data stored in Redis."""
