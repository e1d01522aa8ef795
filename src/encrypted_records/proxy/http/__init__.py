"""Layers that every request and answer of the proxy passes: guard, load limit, sessions, messages.

Nothing here knows an endpoint. May import: ``process``, ``auth``, ``keyrings``, ``admission``.
"""
