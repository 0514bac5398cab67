"""The pure part: values, policies and state machines. No clock, no chance, no I/O, no logging."""
