"""SQL over sealed records: DuckDB, over columns that a proxy opens.

The engine runs in its caller's process and speaks to a proxy with its caller's credentials, so
every decision about rights stays at the proxy. It needs the extra ``sql``.
"""
