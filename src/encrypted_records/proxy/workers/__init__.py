"""Worker processes: their messages, their work, and the pool that runs them.

The public class is :class:`.pool.WorkerPool`; :mod:`.main` is the other process. May import:
``disk``, ``process``, ``spool``.
"""
