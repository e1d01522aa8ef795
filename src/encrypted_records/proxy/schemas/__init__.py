"""Schemas as this proxy has verified them: definition, keys, and log.

The public class is :class:`.states.Schemas`. What the API says of a schema is used after it was
checked here. May import: ``disk``, ``process``, ``keyrings``.
"""
