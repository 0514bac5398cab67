"""Compatibility layers: services written for other schedulers run here with little more than other imports."""
