"""Operations on an organization's roster: create, invite, admit, share, take away.

Every change goes one way (:class:`.changes.RosterChanges`): read the roster to its head and believe
it, check that the change still makes sense, sign, and send entries and grants in one request. A
crash anywhere leaves the organization as it was, or work that any owner's proxy goes on with
(docs/SPEC.md, section 15). May import: ``auth``, ``disk``, ``process``, ``keyrings``, ``rosters``.
"""
