"""Schemas as this proxy has verified them: definition, keys, and log.

The public class is :class:`.states.Schemas`. The API's data on a schema is used only after
it was checked here. May import: ``disk``, ``process``, ``keyrings``, ``sharing``.
"""
