"""Commits: what they may say, and how they are applied, in one transaction or staged ahead.

May import: ``server.erasure``, ``server.rows``, ``server.objects``, ``server.records``.
"""
