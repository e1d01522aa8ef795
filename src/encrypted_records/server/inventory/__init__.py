"""Walks over all that is stored, for operators: verify, examine, move, reconcile.

May import: ``server.erasure``, ``server.rows``, ``server.objects``, ``server.records``.
"""
