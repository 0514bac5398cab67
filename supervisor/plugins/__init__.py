"""Plugins: code of any language that answers init, verify, tasks and run, in this process or in a child of its own.

``contract`` is the interface for authors, ``registry`` knows who is there, ``protocol`` and ``program`` speak with a
program, ``instances`` makes both kinds alike, ``host`` keeps them ready in one process, ``status`` reports to the
cluster how they are and suspends schedules, ``jobs`` are the jobs, which count results and pass them on.
"""
