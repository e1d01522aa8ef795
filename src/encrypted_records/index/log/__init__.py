"""The commit log, verified, and the snapshots of a schema that follow from it.

The public classes are :class:`.ledger.Ledger` and :class:`.snapshot.Snapshot`. May import:
``index.ordinals``, ``index.roster``, ``crypto``, ``rules``, ``model``.
"""
