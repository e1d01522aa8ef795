"""The change feed: what commits did to a schema's records, opened, for programs that follow it.

May import: ``process``, ``keyrings``, ``schemas``, ``search``.
"""
