"""Reading: the log, rows and pages, wherever they are stored.

May import: ``server.objects``, ``server.records``.
"""
