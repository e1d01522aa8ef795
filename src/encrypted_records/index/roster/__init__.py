"""The roster of an organization, verified: who reads and writes what, under which keys.

The public classes are :class:`.roster.Roster` and what :mod:`.grants`, :mod:`.invitations` and
:mod:`.belief` make of it. Pure; may import: ``crypto``, ``model``.
"""
