"""The proxy's endpoints: each reads a request, calls one service, and answers.

Each module exports ``routes``. May import everything below it, and not ``pages``.
"""
