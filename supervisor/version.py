"""The version of Tenure, in the one place that the build and the command read."""

__version__ = "0.1.0"
