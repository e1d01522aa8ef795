"""Reading: the log, rows and pages, wherever they lie.

May import: ``server.objects``, ``server.records``.
"""
