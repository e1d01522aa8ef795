"""Full scans of the stored data, for operators: verify, examine, move, reconcile. ``walk.py``
compares the objects of the database with those of the store for all of them.

May import: ``server.erasure``, ``server.rows``, ``server.objects``, ``server.records``.
"""
