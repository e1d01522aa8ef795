"""Resumable uploads, TUS 1.0.0: headers in, decisions out. Nothing in here does I/O.

``headers`` reads and writes single values, ``protocol`` decides about whole requests. docs/tus.md
lists every MUST and SHOULD of the protocol with the test that holds it.
"""
