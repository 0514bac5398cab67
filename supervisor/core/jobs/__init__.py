"""The job registry, and the options, limits and hooks of jobs."""
