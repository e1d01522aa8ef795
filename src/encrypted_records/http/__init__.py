"""What both sides and the client know of HTTP: problem documents and the reference page.

May import: ``errors``, ``model``.
"""
