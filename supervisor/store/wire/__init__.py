"""Encoding and decoding of what is stored in Redis."""
