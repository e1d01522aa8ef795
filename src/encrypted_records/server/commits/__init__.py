"""What a commit may say, and how it is applied: in one transaction with others, or staged ahead.

May import: ``server.erasure``, ``server.rows``, ``server.objects``, ``server.records``.
"""
