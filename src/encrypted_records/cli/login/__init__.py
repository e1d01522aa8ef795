"""The login of a command's user: tokens, devices, proofs, and the session that commands use.

May import: ``cli.supervise``, ``cli.profiles`` and their imports.
"""
