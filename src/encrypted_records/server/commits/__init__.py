"""Commits: validation, and applying them in one transaction or after staging.

May import: ``server.erasure``, ``server.rows``, ``server.objects``, ``server.records``.
"""
