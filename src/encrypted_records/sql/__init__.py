"""SQL over sealed records: DuckDB, over columns that a proxy decrypts.

The engine requests columns from a proxy with its caller's credentials, so the proxy makes every
decision about rights. DuckDB runs in a separate process, which gets only columns and statements. It
needs the extra ``sql``.
"""
