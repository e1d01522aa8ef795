"""The login of a command's user: tokens, devices, proofs, and the session that commands use.

May import: ``cli.supervise`` and ``cli.output``, and their imports.
"""
