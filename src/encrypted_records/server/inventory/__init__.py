"""Full scans of the stored data, for operators: verify, examine, move, reconcile.

May import: ``server.erasure``, ``server.rows``, ``server.objects``, ``server.records``.
"""
