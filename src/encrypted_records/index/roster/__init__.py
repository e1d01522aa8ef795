"""The verified roster of an organization: members' rights to read and write, and keys.

The public classes are :class:`.roster.Roster` and the classes of :mod:`.access` and :mod:`.belief`.
Pure; may import: ``crypto``, ``rules``, ``model``.
"""
