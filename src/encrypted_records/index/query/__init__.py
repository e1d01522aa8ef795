"""Queries on segments: matching keys and rows, their order, and aggregations.

A query begins with :class:`.condition.Condition`. May import: ``index.segments`` and its imports.
"""
