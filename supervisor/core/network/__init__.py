"""Credentials inside URLs, and names of hosts in one spelling."""
