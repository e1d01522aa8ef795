"""Rules for roster entries and commits, shared by proxies and the API. Pure, keyless.

Callers that can verify signatures pass the results in. May import: ``model``, ``errors``.
"""
