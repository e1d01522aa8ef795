"""SQL over sealed records: DuckDB, over columns that a proxy opens.

The engine asks a proxy for columns with its caller's credentials, so every decision about rights
stays at the proxy. DuckDB runs in a process beside it, which gets columns and statements alone. It
needs the extra ``sql``.
"""
