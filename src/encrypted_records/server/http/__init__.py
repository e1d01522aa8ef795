"""Layers that every request and answer of the API passes: middleware, parsers, errors, OpenAPI.

Nothing here knows an endpoint. May import: ``server.db``, ``server.gateway``, ``server.metrics``.
"""
