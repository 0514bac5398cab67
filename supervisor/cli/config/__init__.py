"""The commands `tenure config` and `tenure import`."""
