"""Logs and metrics of the tree. Every process of it imports this package."""
