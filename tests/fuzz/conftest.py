"""The targets run under the profiles of the core, and ``fuzz`` (``make fuzz``)."""

from tests.reference import profiles

__all__ = ["profiles"]
