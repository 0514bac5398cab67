"""Jobs that ship: commands, HTTP requests, identity upkeep, upkeep of Tenure's own queues.

List the modules to run under ``jobs:`` in the configuration. They use the public API
(``from tenure import job, Context, Retry``), so they are examples for your own as well.
"""
