"""Retention: records that are older than their schema's signed rule allows are deleted.

:class:`.service.Retainer` finds and deletes them; :class:`.daily.DailyRetention` has it done once a
day. May import: ``process``, ``keyrings``, ``schemas``, ``search``, ``write``, ``jobs``.
"""
