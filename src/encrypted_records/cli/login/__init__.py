"""Who the user of a command is: tokens, devices, proofs, and the session that commands use.

May import: ``cli.supervise``, ``cli.profiles`` and what these may.
"""
