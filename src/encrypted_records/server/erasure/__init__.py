"""How what is dead goes: rows whose bytes are erased, what is swept, and who makes it stay.

May import: ``server.rows``, ``server.objects``, ``server.records``.
"""
