"""Judges of roster entries and commits, for proxies and the API alike. Pure, keyless.

Callers that can verify signatures hand in what that gave. May import: ``model``, ``errors``.
"""
