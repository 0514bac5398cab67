"""Rules between settings."""
