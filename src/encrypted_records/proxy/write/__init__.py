"""Change what is stored: ingest, update, delete, merge; each is a commit.

:class:`.committer.Committer` stores commits, and is the only one that does. May import:
``process``, ``keyrings``, ``schemas``, ``search``, ``workers``.
"""
