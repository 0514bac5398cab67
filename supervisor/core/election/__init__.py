"""The lease state machine and the values of a term."""
