"""Change stored records: ingest, update, delete, merge; each is a commit.

Only :class:`.committer.Committer` stores commits. May import: ``process``, ``keyrings``,
``schemas``, ``search``, ``workers``.
"""
