"""Operations on an organization's roster: create, invite, admit, share, take away.

Every change takes the same steps (:class:`.changes.RosterChanges`): read the roster to its head and
verify it, check that the change still makes sense, sign, and send entries and grants in one
request. A crash anywhere leaves the organization as it was, or leaves work that any owner's proxy
completes (docs/SPEC.md, section 15). May import: ``auth``, ``disk``, ``process``, ``keyrings``,
``rosters``.
"""
