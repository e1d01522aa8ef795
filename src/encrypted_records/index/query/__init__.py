"""Queries on segments: which keys match, which rows, in which order, and what they add up to.

:class:`.condition.Condition` is where a query begins. May import: ``index.segments`` and what it
may.
"""
