"""The async and the sync pool."""
