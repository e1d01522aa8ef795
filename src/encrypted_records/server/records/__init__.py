"""Sealed records: commits in, rows and pages out; nothing here can read one."""
