"""The sections of the settings: fields, defaults, ranges."""
