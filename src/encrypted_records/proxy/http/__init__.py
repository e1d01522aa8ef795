"""Layers that process every request and answer of the proxy: guard, load limit, sessions, messages.

This package knows no endpoints. May import: ``process``, ``auth``, ``keyrings``, ``admission``.
"""
