"""Plugins: code of any language that answers init, verify, tasks and run, in this process or in a child of its own."""
