"""Change stored records: ingest, update, delete, merge; each is a commit. Verify and repair them.

Only :class:`.committer.Committer` stores commits. May import: ``process``, ``keyrings``,
``schemas``, ``search``, ``sharing``, ``spool``, ``workers``.
"""
