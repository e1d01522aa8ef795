"""Parts of HTTP that both sides and the client share: problem documents and the reference page.

May import: ``errors``, ``model``.
"""
