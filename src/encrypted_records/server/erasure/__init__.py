"""The end of dead data: erased rows, swept groups and segments, and holds that delay both.

May import: ``server.rows``, ``server.objects``, ``server.records``.
"""
