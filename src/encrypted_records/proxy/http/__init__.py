"""Layers that every request and answer of the proxy passes: guard, cookies, bodies, errors.

Nothing here knows an endpoint. May import: ``process``, ``auth``, ``keyrings``, ``admission``.
"""
